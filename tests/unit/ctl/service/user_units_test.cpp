// SPDX-License-Identifier: Apache-2.0
#include "ctl/service/user_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctl/failure.h"
#include "tests/support/scratch_dir.h"

namespace spdld::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string service_of(const std::string& program, const std::string& config = "") {
  return user_units(program, config).front().text;
}

class UserUnitsTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  void append(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::app) << text;
  }

  test::ScratchDir dir_;
  const UserUnit service_ = user_units("/usr/bin/spdld", "").front();
};

TEST_F(UserUnitsTest, ServiceNamesProgramAndConfiguration) {
  EXPECT_THAT(service_of("/usr/bin/spdld"),
              HasSubstr("\nExecStart=\"/usr/bin/spdld\" --set runtime_dir=%t/spdld-%U "));
  EXPECT_THAT(service_of("/opt/my env/bin/spdld", "/home/a/100%.yaml"),
              HasSubstr("\nExecStart=\"/opt/my env/bin/spdld\" --config \"/home/a/100%%.yaml\" "
                        "--set runtime_dir="));
  EXPECT_THAT(service_.text, AllOf(Not(HasSubstr("@PROGRAM@")), Not(HasSubstr("@CONFIG@"))));
}

TEST_F(UserUnitsTest, UserNamespaceIsOnlyInConfinedService) {
  const UserUnit confined = user_units("/usr/bin/spdld", "", Confinement::kUserNamespace).front();
  EXPECT_THAT(confined.text,
              AllOf(HasSubstr("\nPrivateUsers=yes\n"), HasSubstr("\nNoNewPrivileges=yes\n")));
  EXPECT_THAT(service_.text,
              AllOf(Not(HasSubstr("\nPrivateUsers=")), HasSubstr("\nNoNewPrivileges=yes\n"),
                    Not(HasSubstr("@CONFINED@"))));
}

TEST_F(UserUnitsTest, PathThatNoUnitCanNameIsRefused) {
  for (const std::string path : {"/a\"b/spdld", "/a\\b/spdld", "/a$b/spdld", "/a\nb/spdld"}) {
    EXPECT_THROW(user_units(path, ""), Failure) << path;
    EXPECT_THROW(user_units("/usr/bin/spdld", path), Failure) << path;
  }
}

TEST_F(UserUnitsTest, FileIsWrittenOnceAndReplacedWhenItChanges) {
  EXPECT_TRUE(write_unit(path("new/user"), service_));
  EXPECT_FALSE(write_unit(path("new/user"), service_));
  EXPECT_EQ(unit_file_at(path("new/user/spdld.service")), UnitFile::kSealed);
  EXPECT_TRUE(write_unit(path("new/user"), user_units("/opt/bin/spdld", "").front()));
  std::ifstream file(path("new/user/spdld.service"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), service_of("/opt/bin/spdld"));
  const std::filesystem::directory_iterator listed(path("new/user"));
  EXPECT_EQ(std::distance(begin(listed), end(listed)), 1) << "and nothing is left beside it";
}

TEST_F(UserUnitsTest, FileUnderBrokenSealWasEdited) {
  write_unit(dir_.path(), service_);
  append("spdld.service", "Nice=5\n");
  EXPECT_EQ(unit_file_at(path("spdld.service")), UnitFile::kEdited);
}

TEST_F(UserUnitsTest, FileWithoutSealIsForeign) {
  EXPECT_EQ(unit_file_at(path("spdld.service")), UnitFile::kAbsent);
  append("spdld.service", "[Service]\nExecStart=/bin/true\n");
  append("empty.service", "");
  std::filesystem::create_symlink("/dev/null", path("masked.service"));
  for (const char* name : {"spdld.service", "empty.service", "masked.service"})
    EXPECT_EQ(unit_file_at(path(name)), UnitFile::kForeign) << name;
}

TEST_F(UserUnitsTest, FailedWriteLeavesNoFile) {
  rlimit allowed{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &allowed), 0);
  const rlimit little{16, allowed.rlim_max};
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_THROW(write_unit(path("full"), service_), Failure);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &allowed), 0);
  std::signal(SIGXFSZ, before);
  std::filesystem::create_directories(path("taken/spdld.service"));
  EXPECT_THROW(write_unit(path("taken"), service_), Failure);
  EXPECT_TRUE(std::filesystem::is_empty(path("full")));
  const std::filesystem::directory_iterator listed(path("taken"));
  EXPECT_EQ(std::distance(begin(listed), end(listed)), 1);
}

TEST_F(UserUnitsTest, PlaceThatCannotBeWrittenIsNamed) {
  append("file", "");
  try {
    write_unit(path("file/user"), service_);
    FAIL() << "it was written below a file";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("launch=True"));
    EXPECT_THAT(failure.what(), HasSubstr(path("file/user")));
  }
}

}  // namespace
}  // namespace spdld::ctl
