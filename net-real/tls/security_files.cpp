#include "net-real/tls/security_files.hpp"

#include "core/base/format.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pccl::real::tls {

namespace {

constexpr std::size_t file_max = 16u << 20;

class File {
public:
    File(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
    ~File() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int get() const { return descriptor_; }

private:
    int descriptor_;
};

bool failed(const std::string& path, std::string& error) {
    error = core::formatted("{}: {}", path, std::strerror(errno));
    return false;
}

bool write_all(int descriptor, const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        done += static_cast<std::size_t>(written);
    }
    return true;
}

bool sync_folder_of(const std::string& path) {
    const File folder(path.substr(0, path.rfind('/')), O_RDONLY | O_DIRECTORY);
    return folder.get() >= 0 && ::fsync(folder.get()) == 0;
}

}  // namespace

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool make_folder(const std::string& path, std::string& error) {
    if (::mkdir(path.c_str(), 0700) == 0) return sync_folder_of(path) || failed(path, error);
    return errno == EEXIST || failed(path, error);
}

bool read_file(const std::string& path, std::string& text, std::string& error) {
    const File file(path, O_RDONLY);
    if (file.get() < 0) return failed(path, error);
    text.clear();
    char piece[16384];
    for (;;) {
        const ssize_t got = ::read(file.get(), piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return failed(path, error);
        if (got == 0) return true;
        text.append(piece, static_cast<std::size_t>(got));
        if (text.size() > file_max) {
            error = path + " is too large";
            return false;
        }
    }
}

bool write_file(const std::string& path, const std::string& text, std::string& error) {
    const std::string beside = path + ".new";
    {
        const File file(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
        if (file.get() < 0 || ::fchmod(file.get(), 0600) != 0 || !write_all(file.get(), text) ||
            ::fsync(file.get()) != 0)
            return failed(beside, error);
    }
    if (std::rename(beside.c_str(), path.c_str()) != 0 || !sync_folder_of(path)) return failed(path, error);
    return true;
}

}  // namespace pccl::real::tls
