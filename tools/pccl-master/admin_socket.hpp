// The local socket over which `pccl-master invite`, `members`, `invites`, `withdraw` and `revoke` talk to the running
// master of a secure run. It is in the state directory; the rights of that folder decide who may use it.
//
// One request is one line: a verb and words, separated by spaces. The answer is `ok` or `error`, then text, then the end.
#pragma once

#include "net-real/master_runtime.hpp"

#include <atomic>
#include <string>
#include <thread>

namespace pccl_master {

class AdminServer {
public:
    // `listening`: address of the master for invitations that name none.
    AdminServer(pccl::real::MasterRuntime& master, std::string listening)
        : master_(master), listening_(std::move(listening)) {}
    ~AdminServer();  // ends the thread
    AdminServer(const AdminServer&) = delete;
    AdminServer& operator=(const AdminServer&) = delete;

    // The caller holds the lock of the state directory, so a socket that is there is a leftover.
    bool start(const std::string& state_directory, std::string& error);

private:
    void serve();
    void answer(int client);
    std::string carry_out(const std::string& line);

    pccl::real::MasterRuntime& master_;
    const std::string listening_;
    std::string path_;
    int listener_ = -1;
    int stop_ = -1;  // an eventfd
    std::thread thread_;
};

// Sends one request to the master of the directory. False: `text` names cause and remedy. Blocks for at most 10 s.
bool ask_master(const std::string& state_directory, const std::string& line, std::string& text);

}  // namespace pccl_master
