// A master and communicators inside the process of the test, and access to what the library logged.
#pragma once

#include "pccl.h"

#include <cstdint>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace integration {

inline ccoip_socket_address_t loopback(std::uint16_t port) {
    ccoip_socket_address_t address{};
    address.inet.protocol = inetIPv4;
    address.inet.ipv4.data[0] = 127;
    address.inet.ipv4.data[3] = 1;
    address.port = port;
    return address;
}

inline pcclCommCreateParams_t params_for(std::uint16_t port, std::uint32_t group = 0) {
    pcclCommCreateParams_t params{};
    params.master_address = loopback(port);
    params.peer_group = group;
    return params;
}

// A running master, on a free port unless one is given. Destroyed at the end of the scope.
class LocalMaster {
public:
    explicit LocalMaster(std::uint16_t port = 0) {
        created_ = pcclCreateMaster(loopback(port), &handle_) == pcclSuccess;
        runs_ = created_ && pcclRunMaster(handle_) == pcclSuccess && pcclGetMasterPort(handle_, &port_) == pcclSuccess;
    }
    ~LocalMaster() {
        if (created_) pcclDestroyMaster(handle_);
    }
    LocalMaster(const LocalMaster&) = delete;
    LocalMaster& operator=(const LocalMaster&) = delete;
    bool runs() const { return runs_; }
    std::uint16_t port() const { return port_; }
    pcclMasterInstance_t* handle() const { return handle_; }

private:
    pcclMasterInstance_t* handle_ = nullptr;
    bool created_ = false;
    bool runs_ = false;
    std::uint16_t port_ = 0;
};

// While it lives, standard error of this process goes to memory.
class CapturedLog {
public:
    CapturedLog() : saved_(dup(2)), file_(memfd_create("log", MFD_CLOEXEC)) {
        pcclSetLogCallback(nullptr, nullptr);
        dup2(file_, 2);
    }
    ~CapturedLog() {
        pcclSetLogCallback(nullptr, nullptr);
        dup2(saved_, 2);
        close(saved_);
        close(file_);
    }
    CapturedLog(const CapturedLog&) = delete;
    CapturedLog& operator=(const CapturedLog&) = delete;
    std::string text() const {
        pcclSetLogCallback(nullptr, nullptr);  // returns when the lines of other threads are written
        std::string result;
        char bytes[4096];
        off_t offset = 0;
        for (ssize_t n; (n = pread(file_, bytes, sizeof bytes, offset)) > 0; offset += n) {
            result.append(bytes, static_cast<std::size_t>(n));
        }
        return result;
    }
    int lines_with(const std::string& needle) const {
        int count = 0;
        const std::string all = text();
        for (std::size_t at = 0; (at = all.find(needle, at)) != std::string::npos; at += needle.size()) ++count;
        return count;
    }

private:
    int saved_;
    int file_;
};

inline pcclReduceDescriptor_t describe(std::size_t count, std::uint64_t tag, pcclRedOp_t op = pcclSum,
                                       pcclDataType_t type = pcclFloat) {
    pcclReduceDescriptor_t descriptor{};
    descriptor.count = count;
    descriptor.op = op;
    descriptor.tag = tag;
    descriptor.src_descriptor.datatype = type;
    descriptor.quantization_options.quantized_datatype = type;
    return descriptor;
}

}  // namespace integration
