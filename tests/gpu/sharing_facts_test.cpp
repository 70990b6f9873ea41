// SPDX-License-Identifier: Apache-2.0
// Facts of the driver about physical memory that is exported as a descriptor and imported from one,
// in one process and between several: above all what a killed process leaves to the others.
#include <fcntl.h>
#include <sys/socket.h>

#include "tests/gpu/new_process.h"
#include "tests/gpu/peer.h"
#include "tests/gpu/virtual_memory_facts.h"

namespace spdld::cuda {
namespace {

constexpr auto kType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

class SharingFacts : public VirtualMemoryFacts {
 protected:
  int exported(CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    EXPECT_EQ(export_to(descriptor, handle), CUDA_SUCCESS);
    return descriptor;
  }
};

TEST_F(SharingFacts, EachExportMakesADescriptorForTheCallerToClose) {
  const CUmemGenericAllocationHandle handle = create();
  const int one = exported(handle), two = exported(handle);
  EXPECT_NE(one, two);
  EXPECT_TRUE(is_open(one) && is_open(two));
  EXPECT_EQ(::fcntl(one, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::close(one), 0);
  EXPECT_TRUE(is_open(two));
  EXPECT_EQ(::close(two), 0);
}

TEST_F(SharingFacts, MemoryIsExportedAsItWasWantedAlone) {
  int descriptor = -1;
  CUmemAllocationProp unshared = properties();
  unshared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cu().MemCreate(&handle, granule(), &unshared, 0), CUDA_SUCCESS);
  EXPECT_EQ(export_to(descriptor, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemRelease(handle), CUDA_SUCCESS);
  const CUmemGenericAllocationHandle shared = create();
  EXPECT_EQ(cu().MemExportToShareableHandle(&descriptor, shared, CU_MEM_HANDLE_TYPE_NONE, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemExportToShareableHandle(&descriptor, shared, kType, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemExportToShareableHandle(nullptr, shared, kType, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SharingFacts, ImportingLeavesTheDescriptorOpen) {
  const int descriptor = exported(create());
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(import_from(descriptor, imported), CUDA_SUCCESS);
  EXPECT_TRUE(is_open(descriptor));
  EXPECT_EQ(cu().MemRelease(imported), CUDA_SUCCESS);
  EXPECT_TRUE(is_open(descriptor));
  EXPECT_EQ(::close(descriptor), 0);
}

TEST_F(SharingFacts, EachImportIsReleased) {
  const CUmemGenericAllocationHandle handle = create();
  const int descriptor = exported(handle);
  CUmemGenericAllocationHandle one = 0, two = 0;
  ASSERT_EQ(import_from(descriptor, one), CUDA_SUCCESS);
  ASSERT_EQ(import_from(descriptor, two), CUDA_SUCCESS);
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_EQ(cu().MemRelease(one), CUDA_SUCCESS);
  release(handle);
  const CUdeviceptr address = mapped(two);
  EXPECT_EQ(cu().MemRelease(two), CUDA_SUCCESS);
  ASSERT_EQ(grant(address, granule(), kReadWrite), CUDA_SUCCESS);
  write(address, granule(), 1);
  EXPECT_EQ(read(address, granule()), 1);
}

TEST_F(SharingFacts, ImportedMemoryIsTheMemoryThatWasExported) {
  const CUmemGenericAllocationHandle handle = create();
  const int descriptor = exported(handle);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(import_from(descriptor, imported), CUDA_SUCCESS);
  EXPECT_EQ(::close(descriptor), 0);
  const CUdeviceptr one = mapped(handle), two = mapped(imported);
  ASSERT_EQ(grant(one, granule(), kReadWrite), CUDA_SUCCESS);
  ASSERT_EQ(grant(two, granule(), kReadWrite), CUDA_SUCCESS);
  write(one, granule(), 2);
  EXPECT_EQ(read(two, granule()), 2);
  EXPECT_EQ(cu().MemMap(reserve(2 * granule()), 2 * granule(), 0, imported, 0),
            CUDA_ERROR_NOT_SUPPORTED)
      << "it is as large as it was";
  EXPECT_EQ(cu().MemRelease(imported), CUDA_SUCCESS);
}

TEST_F(SharingFacts, ADescriptorKeepsMemoryThatIsReleased) {
  const CUmemGenericAllocationHandle handle = create();
  const CUdeviceptr address = mapped(handle);
  ASSERT_EQ(grant(address, granule(), kReadWrite), CUDA_SUCCESS);
  write(address, granule(), 3);
  const int descriptor = exported(handle);
  unmap(address);
  release(handle);
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(import_from(descriptor, imported), CUDA_SUCCESS);
  EXPECT_EQ(::close(descriptor), 0);
  const CUdeviceptr again = mapped(imported);
  EXPECT_EQ(cu().MemRelease(imported), CUDA_SUCCESS);
  ASSERT_EQ(grant(again, granule(), kReadWrite), CUDA_SUCCESS);
  EXPECT_EQ(read(again, granule()), 3);
}

TEST_F(SharingFacts, DescriptorsOfOtherThingsAreRefusedAndLeftAsTheyAre) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int memfd = sealed_memfd(granule(), 1);
  const int closed = ::dup(null);
  ::close(closed);
  CUmemGenericAllocationHandle handle = 0;
  for (const int descriptor : {pipe_ends[0], null, memfd}) {
    EXPECT_EQ(import_from(descriptor, handle), CUDA_ERROR_UNKNOWN) << descriptor;
    EXPECT_TRUE(is_open(descriptor));
  }
  EXPECT_EQ(import_from(closed, handle), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(import_from(-1, handle), CUDA_ERROR_UNKNOWN);
  const int next = ::dup(null);
  EXPECT_EQ(next, closed) << "no descriptor is used up";
  EXPECT_NE(create(), 0u) << "that harms nothing";
  for (const int descriptor : {pipe_ends[0], pipe_ends[1], null, memfd, next}) ::close(descriptor);
}

TEST_F(SharingFacts, ImportsNeedAType) {
  const int descriptor = exported(create());
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(
      cu().MemImportFromShareableHandle(&handle, as_argument(descriptor), CU_MEM_HANDLE_TYPE_NONE),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().MemImportFromShareableHandle(nullptr, as_argument(descriptor), kType),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::close(descriptor), 0);
}

TEST_F(SharingFacts, ImportedMemoryCannotBeExported) {
  const int descriptor = exported(create());
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(import_from(descriptor, imported), CUDA_SUCCESS);
  int again = -1;
  EXPECT_EQ(export_to(again, imported), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(::close(descriptor), 0);
  EXPECT_EQ(cu().MemRelease(imported), CUDA_SUCCESS);
}

// Between processes. Each fact runs in a new process, whose peers are forked before it starts the
// driver; a peer does so only when it is told to, after free memory was looked at.

// What each of these processes does with a device; it ends where something fails.
class User {
 public:
  explicit User(CUdevice device = 0) : device_(device) {
    REQUIRE(driver());
    CUcontext context = nullptr;
    REQUIRE(cu().DevicePrimaryCtxRetain(&context, device_) == CUDA_SUCCESS);
    REQUIRE(cu().CtxPushCurrent(context) == CUDA_SUCCESS);
    const CUmemAllocationProp wanted = properties_of(device_);
    std::size_t granule = 0;
    REQUIRE(cu().MemGetAllocationGranularity(&granule, &wanted,
                                             CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS);
    bytes = (kBytes + granule - 1) / granule * granule;
  }

  const Functions& cu() const { return *driver().functions; }

  std::size_t free_bytes() const {
    std::size_t free = 0, total = 0;
    REQUIRE(cu().MemGetInfo(&free, &total) == CUDA_SUCCESS);
    return free;
  }
  CUresult create(CUmemGenericAllocationHandle& handle, std::size_t how_many) const {
    const CUmemAllocationProp wanted = properties_of(device_);
    return cu().MemCreate(&handle, how_many, &wanted, 0);
  }
  int exported(CUmemGenericAllocationHandle handle) const {
    int descriptor = -1;
    REQUIRE(cu().MemExportToShareableHandle(&descriptor, handle, kType, 0) == CUDA_SUCCESS);
    return descriptor;
  }
  // Lets go of the descriptor.
  CUmemGenericAllocationHandle imported(int descriptor) const {
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(cu().MemImportFromShareableHandle(&handle, as_argument(descriptor), kType) ==
            CUDA_SUCCESS);
    ::close(descriptor);
    return handle;
  }
  // Lets go of the handle.
  CUdeviceptr mapped(CUmemGenericAllocationHandle handle) const {
    const CUmemAccessDesc access = access_of(kReadWrite, device_);
    CUdeviceptr address = 0;
    REQUIRE(cu().MemAddressReserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cu().MemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(cu().MemRelease(handle) == CUDA_SUCCESS);
    REQUIRE(cu().MemSetAccess(address, bytes, &access, 1) == CUDA_SUCCESS);
    return address;
  }
  void unmap(CUdeviceptr address) const {
    REQUIRE(cu().MemUnmap(address, bytes) == CUDA_SUCCESS);
    REQUIRE(cu().MemAddressFree(address, bytes) == CUDA_SUCCESS);
  }
  void write(CUdeviceptr to, char byte) const {
    const std::vector<char> from(bytes, byte);
    REQUIRE(cu().MemcpyHtoDAsync(to, from.data(), bytes, nullptr) == CUDA_SUCCESS);
    REQUIRE(cu().StreamSynchronize(nullptr) == CUDA_SUCCESS);
  }
  bool holds(CUdeviceptr from, char byte) const {
    const auto copy = function_of<PFN_cuMemcpyDtoHAsync_v3020>("cuMemcpyDtoHAsync", 3020);
    std::vector<char> found(bytes);
    REQUIRE(copy != nullptr);
    REQUIRE(copy(found.data(), from, bytes, nullptr) == CUDA_SUCCESS);
    REQUIRE(cu().StreamSynchronize(nullptr) == CUDA_SUCCESS);
    return found == std::vector<char>(bytes, byte);
  }

  std::size_t bytes = 0;  // of what is created, mapped, written and read

 private:
  // Far more than what a driver keeps for itself by the way.
  static constexpr std::size_t kBytes = 64 << 20;
  const CUdevice device_;
};

// A peer that exports memory full of a byte, and keeps it mapped, when it has heard a word.
void export_filled(int socket, char byte) {
  hear(socket);
  const User user;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(user.create(handle, user.bytes) == CUDA_SUCCESS);
  const int descriptor = user.exported(handle);
  user.write(user.mapped(handle), byte);
  pass(socket, descriptor);
  ::close(descriptor);
}

class ProcessFacts : public DriverFacts {
 protected:
  // Ends the new process where its device cannot be shared by processes.
  static void end_unless_shareable() {
    REQUIRE(driver());
    const auto has = [](CUdevice_attribute which) {
      int value = 0;
      REQUIRE(driver().functions->DeviceGetAttribute(&value, which, 0) == CUDA_SUCCESS);
      return value;
    };
    if (has(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_EXCLUSIVE_PROCESS ||
        has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
      std::fputs("asked nothing: processes cannot share the first device\n", stderr);
      std::_Exit(0);
    }
  }
  // Free memory that is about what it was, and that is about `less` less.
  static bool about(std::size_t free, std::size_t before, std::size_t less = 0) {
    const std::size_t slack = std::size_t{16} << 20;
    return free + less + slack > before && free + less < before + slack;
  }
};

TEST_F(ProcessFacts, AnImporterReadsWhatTheExporterWrote) {
  HOLDS_IN_A_NEW_PROCESS({
    const Peer exporter([](int socket) { export_filled(socket, 1); });
    end_unless_shareable();
    tell(exporter.socket());
    const User user;
    const CUdeviceptr address = user.mapped(user.imported(take(exporter.socket())));
    REQUIRE(user.holds(address, 1));
  });
}

TEST_F(ProcessFacts, AnExporterReadsWhatTheImporterWrites) {
  HOLDS_IN_A_NEW_PROCESS({
    const Peer importer([](int socket) {
      const int descriptor = take(socket);
      const User user;
      user.write(user.mapped(user.imported(descriptor)), 2);
      tell(socket);
    });
    end_unless_shareable();
    const User user;
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(user.create(handle, user.bytes) == CUDA_SUCCESS);
    const int descriptor = user.exported(handle);
    const CUdeviceptr address = user.mapped(handle);
    user.write(address, 1);
    pass(importer.socket(), descriptor);
    hear(importer.socket());
    REQUIRE(user.holds(address, 2));
  });
}

TEST_F(ProcessFacts, AnImporterReadsOnWhenTheExporterIsKilled) {
  HOLDS_IN_A_NEW_PROCESS({
    Peer exporter([](int socket) { export_filled(socket, 3); });
    end_unless_shareable();
    const User user;
    const std::size_t before = user.free_bytes();
    tell(exporter.socket());
    const CUdeviceptr address = user.mapped(user.imported(take(exporter.socket())));
    exporter.kill();
    REQUIRE(user.holds(address, 3));
    REQUIRE(about(user.free_bytes(), before, user.bytes));
    user.unmap(address);
    REQUIRE(about(user.free_bytes(), before));
  });
}

TEST_F(ProcessFacts, AnExporterReadsOnWhenTheImporterIsKilled) {
  HOLDS_IN_A_NEW_PROCESS({
    Peer importer([](int socket) {
      const int descriptor = take(socket);
      const User user;
      user.mapped(user.imported(descriptor));
      tell(socket);
    });
    end_unless_shareable();
    const User user;
    const std::size_t before = user.free_bytes();
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(user.create(handle, user.bytes) == CUDA_SUCCESS);
    const int descriptor = user.exported(handle);
    const CUdeviceptr address = user.mapped(handle);
    user.write(address, 4);
    pass(importer.socket(), descriptor);
    ::close(descriptor);
    hear(importer.socket());
    importer.kill();
    REQUIRE(user.holds(address, 4));
    REQUIRE(about(user.free_bytes(), before, user.bytes));
    user.unmap(address);
    REQUIRE(about(user.free_bytes(), before));
  });
}

TEST_F(ProcessFacts, MemoryIsGoneWhenAllItsProcessesAreKilled) {
  HOLDS_IN_A_NEW_PROCESS({
    Peer exporter([](int socket) { export_filled(socket, 5); });
    Peer importer([](int socket) {
      const int descriptor = take(socket);
      const User user;
      user.mapped(user.imported(descriptor));
      tell(socket);
    });
    end_unless_shareable();
    const User user;
    const std::size_t before = user.free_bytes();
    tell(exporter.socket());
    const int descriptor = take(exporter.socket());
    pass(importer.socket(), descriptor);
    ::close(descriptor);
    hear(importer.socket());
    exporter.kill();
    importer.kill();
    REQUIRE(about(user.free_bytes(), before));
  });
}

TEST_F(ProcessFacts, ADescriptorInFlightKeepsMemoryOfAKilledProcess) {
  HOLDS_IN_A_NEW_PROCESS({
    Peer exporter([](int socket) { export_filled(socket, 6); });
    end_unless_shareable();
    const User user;
    const std::size_t before = user.free_bytes();
    tell(exporter.socket());
    char byte = 0;
    REQUIRE(::recv(exporter.socket(), &byte, 1, MSG_PEEK) == 1);  // it is on its way, not taken
    exporter.kill();
    REQUIRE(about(user.free_bytes(), before, user.bytes));
    const CUdeviceptr address = user.mapped(user.imported(take(exporter.socket())));
    REQUIRE(user.holds(address, 6));
    user.unmap(address);
    REQUIRE(about(user.free_bytes(), before));
  });
}

TEST_F(ProcessFacts, AProcessWithoutCudaKeepsMemoryByADescriptor) {
  HOLDS_IN_A_NEW_PROCESS({
    Peer exporter([](int socket) { export_filled(socket, 7); });
    Peer holder([](int socket) {
      take(socket);
      tell(socket);
    });
    end_unless_shareable();
    const User user;
    const std::size_t before = user.free_bytes();
    tell(exporter.socket());
    const int descriptor = take(exporter.socket());
    pass(holder.socket(), descriptor);
    ::close(descriptor);
    hear(holder.socket());
    exporter.kill();
    REQUIRE(about(user.free_bytes(), before, user.bytes));
    holder.kill();
    REQUIRE(about(user.free_bytes(), before));
  });
}

TEST_F(ProcessFacts, ProcessesShareTheMemoryOfADevice) {
  HOLDS_IN_A_NEW_PROCESS({
    Peer other([](int socket) {
      hear(socket);
      const User user;
      CUmemGenericAllocationHandle handle = 0;
      REQUIRE(user.create(handle, user.free_bytes() / 2 / user.bytes * user.bytes) == CUDA_SUCCESS);
      tell(socket);
    });
    end_unless_shareable();
    const User user;
    const std::size_t most = user.free_bytes() * 3 / 4 / user.bytes * user.bytes;
    CUmemGenericAllocationHandle handle = 0;
    tell(other.socket());
    hear(other.socket());
    REQUIRE(user.create(handle, most) == CUDA_ERROR_OUT_OF_MEMORY);
    other.kill();
    REQUIRE(user.create(handle, most) == CUDA_SUCCESS);
  });
}

TEST_F(ProcessFacts, MemoryOfADeviceThatIsNotVisibleIsRefused) {
  HOLDS_IN_A_NEW_PROCESS({
    const Peer importer([](int socket) {
      const int descriptor = take(socket);
      ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
      const User user;
      CUmemGenericAllocationHandle handle = 0;
      REQUIRE(user.cu().MemImportFromShareableHandle(&handle, as_argument(descriptor), kType) ==
              CUDA_ERROR_INVALID_DEVICE);
      tell(socket);
    });
    end_unless_shareable();
    if (driver().devices < 2) {
      std::fputs("asked nothing: there is one device\n", stderr);
      std::_Exit(0);
    }
    const User user;
    CUmemGenericAllocationHandle handle = 0;
    REQUIRE(user.create(handle, user.bytes) == CUDA_SUCCESS);
    pass(importer.socket(), user.exported(handle));
    hear(importer.socket());
  });
}

}  // namespace
}  // namespace spdld::cuda
