// A file whose next reader waits: a FIFO takes its place, and the reader gets the same bytes when the test lets it.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pccl::real {

class HeldFile {
public:
    explicit HeldFile(std::string path) : path_(std::move(path)) {
        std::filesystem::rename(path_, aside());
        if (::mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("no FIFO");
        // Both may have been made within one tick of the clock, and must look different.
        std::filesystem::last_write_time(path_, std::filesystem::last_write_time(aside()) - std::chrono::hours(1));
    }
    HeldFile(const HeldFile&) = delete;
    ~HeldFile() {
        if (writer_ >= 0) ::close(writer_);
    }
    // Returns when a reader has opened the file. That reader waits, and later ones find the file as it was.
    void await_reader() {
        writer_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
        if (writer_ < 0) throw std::runtime_error("no reader");
        std::filesystem::rename(aside(), path_);
    }
    void let_read() {
        std::ifstream in(path_);
        const std::string text(std::istreambuf_iterator<char>(in), {});
        const auto written = ::write(writer_, text.data(), text.size());  // a pipe holds more than such a file
        ::close(std::exchange(writer_, -1));
        if (written != static_cast<ssize_t>(text.size())) throw std::runtime_error("the reader has gone");
    }

private:
    std::string aside() const { return path_ + ".aside"; }
    std::string path_;
    int writer_ = -1;
};

}  // namespace pccl::real
