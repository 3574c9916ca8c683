// Owns a file descriptor and closes it.
#pragma once

#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace pccl::harness {

class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        if (this != &other) {
            close();
            number_ = std::exchange(other.number_, -1);
        }
        return *this;
    }
    ~Descriptor() { close(); }
    int number() const { return number_; }
    bool is_open() const { return number_ >= 0; }
    void close() {
        if (number_ >= 0) ::close(number_);
        number_ = -1;
    }
    // The other end of the connection sees a reset. What has not arrived is lost.
    void close_with_reset() {
        if (number_ < 0) return;
        const linger at_once{1, 0};
        ::setsockopt(number_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close();
    }

private:
    int number_ = -1;
};

}  // namespace pccl::harness
