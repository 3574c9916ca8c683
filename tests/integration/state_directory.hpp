// A directory for the journal of one test. It is deleted when the test ends.
#pragma once

#include "process.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace integration {

class StateDirectory {
public:
    StateDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "pccl-journal-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
        path_ = name;
    }
    ~StateDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    StateDirectory(const StateDirectory&) = delete;
    Environment environment() const { return {{"PCCL_STATE_DIR", path_}}; }
    const std::string& path() const { return path_; }
    // On a disk that stall_disk() can make hang.
    Environment environment_with_disk() const {
        return {{"PCCL_STATE_DIR", path_},
                {"LD_PRELOAD", PCCL_TEST_STALLED_DISK},
                {"ASAN_OPTIONS", "verify_asan_link_order=0"},
                {"TSAN_OPTIONS", "report_thread_leaks=0"},  // a process may end beside a thread that waits for the disk
                {"PCCL_TEST_STALLED_WHILE", path_ + "/stalled"}};
    }
    void stall_disk(bool stalled) const {
        if (stalled)
            std::ofstream(path_ + "/stalled").put('1');
        else
            std::filesystem::remove(path_ + "/stalled");
    }

private:
    std::string path_;
};

}  // namespace integration
