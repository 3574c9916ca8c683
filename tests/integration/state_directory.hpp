// A directory for the journal of one test, gone when the test ends.
#pragma once

#include "process.hpp"

#include <cstdlib>
#include <filesystem>
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

private:
    std::string path_;
};

}  // namespace integration
