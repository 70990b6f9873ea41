// SPDX-License-Identifier: Apache-2.0
// Physical memory that processes of the fake share: that it is the same memory, who keeps it alive,
// and that it is accounted for whoever dies.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "tests/fake_cuda/shared_memory.h"
#include "tests/support/pass_descriptor.h"
#include "tests/support/scratch_dir.h"

namespace spdld::fake_cuda {
namespace {

// A socket between processes that are forked later.
struct Sockets {
  Sockets() { REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0); }
  int ends[2];
};

void send(const Sockets& sockets, int descriptor) {
  REQUIRE(test::send_descriptor(sockets.ends[0], descriptor));
}

int receive(const Sockets& sockets) {
  const int descriptor = test::receive_descriptor(sockets.ends[1]);
  REQUIRE(descriptor >= 0);
  return descriptor;
}

// Exports memory full of `byte`, and keeps it mapped.
void export_filled(const Sockets& sockets, int byte) {
  use_device();
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr address = map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUstream stream = new_stream();
  REQUIRE(fill(address, byte, kGranuleBytes, stream) == CUDA_SUCCESS);
  REQUIRE(cu().StreamSynchronize(stream) == CUDA_SUCCESS);
  const int descriptor = export_descriptor(handle);
  send(sockets, descriptor);
  ::close(descriptor);
}

// Imports it for reading; nothing but the mapping is left.
CUdeviceptr import_mapped(const Sockets& sockets) {
  const int descriptor = receive(sockets);
  const CUmemGenericAllocationHandle handle = import(descriptor);
  ::close(descriptor);
  const CUdeviceptr address = map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READ);
  release(handle);
  return address;
}

class FakeCudaSharing : public ::testing::Test {
 protected:
  // Runs `body` in a child whose processes share a ledger.
  Ended shared(const std::function<void()>& body, std::vector<std::string> settings = {}) {
    settings.push_back("FAKE_CUDA_LEDGER=" + ledger_);
    return in_child(settings, body);
  }
  // Asked without CUDA.
  std::uint64_t living_bytes() const {
    FakeCudaCounts counts{};
    REQUIRE(doors().read_ledger(ledger_.c_str(), &counts) == 0);
    return counts.shared_bytes;
  }

 private:
  const test::ScratchDir scratch_;
  const std::string ledger_ = scratch_.path() + "/ledger";
};

TEST_F(FakeCudaSharing, AnImporterReadsWhatTheExporterWrites) {
  EXPECT_THAT(shared([] {
                const Sockets sockets;
                const OtherProcess exporter([&] { export_filled(sockets, 7); });
                use_device();
                const CUdeviceptr address = import_mapped(sockets);
                REQUIRE(content(address)[0] == 7 && content(address)[kGranuleBytes - 1] == 7);
                REQUIRE(all_counts().shared_bytes == kGranuleBytes);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, ReferencesOfOneProcessReachTheSameMemory) {
  EXPECT_THAT(shared([] {
                use_device();
                const CUmemGenericAllocationHandle handle = create();
                const int descriptor = export_descriptor(handle);
                const CUmemGenericAllocationHandle one = import(descriptor),
                                                   two = import(descriptor);
                content(map_with(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE))[5] = 'a';
                REQUIRE(content(map_with(one, CU_MEM_ACCESS_FLAGS_PROT_READ))[5] == 'a');
                REQUIRE(own_counts().handles == 3);
                REQUIRE(own_counts().shared_bytes == kGranuleBytes);
                REQUIRE(all_counts().shared_bytes == kGranuleBytes);
                release(one);
                release(handle);
                REQUIRE(content(map_with(two, CU_MEM_ACCESS_FLAGS_PROT_READ))[5] == 'a');
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, MemoryOutlivesItsExporter) {
  EXPECT_THAT(shared([this] {
                const Sockets sockets;
                OtherProcess exporter([&] { export_filled(sockets, 7); });
                OtherProcess importer([&] {
                  use_device();
                  import_mapped(sockets);
                });
                exporter.kill();
                REQUIRE(living_bytes() == kGranuleBytes);
                importer.kill();
                REQUIRE(living_bytes() == 0);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, AnImporterReadsOnWhenTheExporterIsKilled) {
  EXPECT_THAT(shared([] {
                const Sockets sockets;
                OtherProcess exporter([&] { export_filled(sockets, 7); });
                use_device();
                const std::size_t before = free_bytes();
                const CUdeviceptr address = import_mapped(sockets);
                exporter.kill();
                REQUIRE(content(address)[kGranuleBytes - 1] == 7);
                REQUIRE(free_bytes() == before);  // it is counted once
                unmap(address);
                REQUIRE(free_bytes() == before + kGranuleBytes);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, MemoryOutlivesItsImporter) {
  EXPECT_THAT(shared([this] {
                const Sockets sockets;
                OtherProcess exporter([&] { export_filled(sockets, 7); });
                OtherProcess importer([&] {
                  use_device();
                  import_mapped(sockets);
                });
                importer.kill();
                REQUIRE(living_bytes() == kGranuleBytes);
                exporter.kill();
                REQUIRE(living_bytes() == 0);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, MemoryIsGoneWithItsLastReference) {
  EXPECT_THAT(shared([] {
                use_device();
                const std::size_t before = free_bytes();
                const CUmemGenericAllocationHandle handle = create();
                const int descriptor = export_descriptor(handle);
                const CUmemGenericAllocationHandle imported = import(descriptor);
                const CUdeviceptr address = map(handle);
                for (const auto& let_go : std::initializer_list<std::function<void()>>{
                         [&] { release(handle); }, [&] { release(imported); },
                         [&] { unmap(address); }, [&] { ::close(descriptor); }}) {
                  REQUIRE(all_counts().shared_bytes == kGranuleBytes);
                  REQUIRE(free_bytes() == before - kGranuleBytes);
                  let_go();
                }
                REQUIRE(all_counts().shared_bytes == 0 && free_bytes() == before);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, ADescriptorInFlightKeepsMemory) {
  EXPECT_THAT(shared([] {
                const Sockets sockets;
                use_device();
                const CUmemGenericAllocationHandle handle = create();
                const int descriptor = export_descriptor(handle);
                send(sockets, descriptor);
                send(sockets, descriptor);
                ::close(descriptor);
                release(handle);
                REQUIRE(all_counts().shared_bytes == kGranuleBytes);
                REQUIRE(own_counts().shared_bytes == 0);
                const int received = receive(sockets);
                release(import(received));
                ::close(received);
                REQUIRE(all_counts().shared_bytes == kGranuleBytes);  // of the second one
                ::close(sockets.ends[0]);
                ::close(sockets.ends[1]);
                REQUIRE(all_counts().shared_bytes == 0);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, AProcessWithoutCudaKeepsMemoryByADescriptor) {
  EXPECT_THAT(shared([this] {
                const Sockets sockets;
                OtherProcess exporter([&] { export_filled(sockets, 7); });
                OtherProcess holder([&] { receive(sockets); });
                exporter.kill();
                REQUIRE(living_bytes() == kGranuleBytes);
                holder.kill();
                REQUIRE(living_bytes() == 0);
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, ProcessesShareTheMemoryOfADevice) {
  EXPECT_THAT(shared(
                  [] {
                    OtherProcess other([] {
                      use_device();
                      create(2 * kGranuleBytes);
                      new_memory(kGranuleBytes);
                    });
                    use_device();
                    const CUmemAllocationProp properties = properties_of();
                    CUmemGenericAllocationHandle handle = 0;
                    CUdeviceptr address = 0;
                    REQUIRE(free_bytes() == kGranuleBytes);
                    REQUIRE(cu().MemCreate(&handle, 2 * kGranuleBytes, &properties, 0) ==
                            CUDA_ERROR_OUT_OF_MEMORY);
                    REQUIRE(cu().MemAlloc(&address, kGranuleBytes + 1) == CUDA_ERROR_OUT_OF_MEMORY);
                    create();
                    REQUIRE(free_bytes() == 0);
                    REQUIRE(cu().MemAlloc(&address, 1) == CUDA_ERROR_OUT_OF_MEMORY);
                    other.kill();
                    REQUIRE(free_bytes() == 3 * kGranuleBytes);
                    create(3 * kGranuleBytes);
                  },
                  {"FAKE_CUDA_MEMORY=" + std::to_string(4 * kGranuleBytes)}),
              Succeeds());
}

TEST_F(FakeCudaSharing, EachDeviceHasItsOwnMemory) {
  EXPECT_THAT(
      shared(
          [] {
            use_device();
            const CUmemAllocationProp second = properties_of(1);
            CUmemGenericAllocationHandle handle = 0;
            create();
            REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &second, 0) == CUDA_SUCCESS);
            REQUIRE(cu().MemCreate(&handle, kGranuleBytes, &second, 0) == CUDA_ERROR_OUT_OF_MEMORY);
            REQUIRE(all_counts().shared_bytes == 2 * kGranuleBytes);
          },
          {"FAKE_CUDA_DEVICES=2", "FAKE_CUDA_MEMORY=" + std::to_string(kGranuleBytes)}),
      Succeeds());
}

TEST_F(FakeCudaSharing, LedgersDoNotCountMemoryOfOthers) {
  EXPECT_THAT(in_child({},
                       [] {
                         const Sockets sockets;
                         const OtherProcess exporter([&] { export_filled(sockets, 7); });
                         use_device();
                         REQUIRE(all_counts().shared_bytes == 0);
                         import_mapped(sockets);
                         REQUIRE(own_counts().shared_bytes == kGranuleBytes);
                         REQUIRE(all_counts().shared_bytes == 0);
                       }),
              Succeeds());
}

TEST_F(FakeCudaSharing, ForeignDescriptorsAreRefusedAndLeftAsTheyAre) {
  EXPECT_THAT(shared([] {
                use_device();
                int pipe_ends[2];
                REQUIRE(::pipe(pipe_ends) == 0);
                const int memfd = ::memfd_create("fake_cuda ", 0);
                REQUIRE(::ftruncate(memfd, kGranuleBytes) == 0);
                const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
                CUmemGenericAllocationHandle handle = 0;
                for (const int descriptor : {pipe_ends[0], memfd, null}) {
                  REQUIRE(try_import(descriptor, handle) == CUDA_ERROR_UNKNOWN);
                  REQUIRE(::fcntl(descriptor, F_GETFD) >= 0);
                }
                REQUIRE(try_import(-1, handle) == CUDA_ERROR_UNKNOWN);
                REQUIRE(try_import(1 << 20, handle) == CUDA_ERROR_UNKNOWN);
                REQUIRE(own_counts().handles == 0);
                REQUIRE(::dup(null) == null + 1);  // no descriptor was used up
              }),
              Succeeds());
}

TEST_F(FakeCudaSharing, MemoryOfAnInvisibleDeviceIsRefused) {
  EXPECT_THAT(shared(
                  [] {
                    const Sockets sockets;
                    const OtherProcess exporter([&] { export_filled(sockets, 7); });
                    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
                    use_device();
                    const int descriptor = receive(sockets);
                    CUmemGenericAllocationHandle handle = 0;
                    REQUIRE(try_import(descriptor, handle) == CUDA_ERROR_INVALID_DEVICE);
                    REQUIRE(own_counts().handles == 0);
                  },
                  {"FAKE_CUDA_DEVICES=2"}),
              Succeeds());
}

TEST_F(FakeCudaSharing, ImportedMemoryIsOfTheDeviceOfItsUuid) {
  EXPECT_THAT(shared(
                  [] {
                    const Sockets sockets;
                    const OtherProcess exporter([&] { export_filled(sockets, 7); });
                    ::setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
                    use_device();
                    CUmemAllocationProp properties{};
                    REQUIRE(cu().MemGetAllocationPropertiesFromHandle(
                                &properties, import(receive(sockets))) == CUDA_SUCCESS);
                    REQUIRE(properties.location.id == 1);
                  },
                  {"FAKE_CUDA_DEVICES=2"}),
              Succeeds());
}

}  // namespace
}  // namespace spdld::fake_cuda
