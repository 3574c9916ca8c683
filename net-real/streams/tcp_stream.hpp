// A stream over a connected socket, or over one that is being connected.
#pragma once

#include "net-real/streams/stream.hpp"

namespace pccl::real {

class TcpStream final : public Stream {
public:
    // Owns the descriptor, which must be non-blocking.
    explicit TcpStream(int descriptor) : descriptor_(descriptor) {}
    ~TcpStream() override { close(); }
    TcpStream(const TcpStream&) = delete;
    TcpStream& operator=(const TcpStream&) = delete;

    int descriptor() const override { return descriptor_; }
    Opening open(std::string& reason) override;
    Wait opening_wait() override { return Wait::writable; }
    ssize_t receive(std::span<const iovec> parts) override;
    ssize_t send(std::span<const iovec> parts, bool more) override;
    void shut_down_output() override;
    Wait input_wait() override { return Wait::readable; }
    Wait output_wait() override { return Wait::writable; }
    void apply(const SocketOptions& options) override;
    void limit_unsent() override;
    void close() override;

private:
    int descriptor_;
    bool unsent_limited_ = false;
};

}  // namespace pccl::real
