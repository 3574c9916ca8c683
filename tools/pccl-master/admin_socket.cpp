#include "admin_socket.hpp"

#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "net-real/workers.hpp"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <optional>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace pccl_master {

namespace {

using pccl::core::formatted;
using pccl::real::tls::Authority;
using Clock = std::chrono::steady_clock;

constexpr std::size_t request_max = 1024;
constexpr std::size_t answer_max = 4u << 20;
constexpr int accept_pause_ms = 100;
constexpr timeval patience{2, 0};
constexpr timeval client_patience{10, 0};

// The path of a socket may have at most 107 bytes, that of a state directory any length. So both ends name the socket by
// a descriptor of its folder.
class SocketFolder {
public:
    explicit SocketFolder(const std::string& state_directory)
        : descriptor_(::open((state_directory + "/security").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}
    ~SocketFolder() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    SocketFolder(const SocketFolder&) = delete;
    SocketFolder& operator=(const SocketFolder&) = delete;
    bool exists() const { return descriptor_ >= 0; }
    void remove_socket() const { ::unlinkat(descriptor_, "admin", 0); }
    sockaddr_un address() const {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        const std::string path = formatted("/proc/self/fd/{}/admin", descriptor_);
        std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
        return name;
    }

private:
    int descriptor_;
};

void limit_waits(int socket, const timeval& time) {
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

// Limits a whole request or answer. limit_waits() limits only one step of it.
Clock::time_point deadline_after(const timeval& time) { return Clock::now() + std::chrono::seconds(time.tv_sec); }

bool send_all(int socket, const std::string& text, const timeval& time) {
    const auto deadline = deadline_after(time);
    for (std::size_t done = 0; done < text.size();) {
        if (Clock::now() >= deadline) return false;
        const ssize_t sent = ::send(socket, text.data() + done, text.size() - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        done += static_cast<std::size_t>(sent);
    }
    return true;
}

// Up to the end of the input, or with `line` up to a line end.
bool read_all(int socket, std::string& text, std::size_t most, bool line, const timeval& time) {
    const auto deadline = deadline_after(time);
    char piece[4096];
    while (text.size() <= most && Clock::now() < deadline) {
        const ssize_t got = ::recv(socket, piece, sizeof piece, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) return !line;
        text.append(piece, static_cast<std::size_t>(got));
        if (const std::size_t end = text.find('\n'); line && end != std::string::npos) {
            text.resize(end);
            return true;
        }
    }
    return false;
}

bool read_number(const std::string& text, std::int64_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size();
}

std::string error_answer(const std::string& text) { return "error\n" + text + "\n"; }

std::string invite(Authority& authority, std::istringstream& words, const std::string& listening) {
    Authority::Wish wish;
    wish.address = listening;
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
        std::int64_t number = 0;
        if (key == "name")
            wish.name = value;
        else if (key == "address")
            wish.address = value;
        else if (!read_number(value, number) || number < 0 || number > 0xFFFFFFFF)
            return error_answer(formatted("{} cannot be used", word));
        else if (key == "ttl")
            wish.ttl = number;
        else if (key == "uses")
            wish.uses = static_cast<std::uint32_t>(number);
        else if (key == "group")
            wish.group = static_cast<pccl::core::GroupId>(number);
    }
    std::string text, error;
    return authority.invite(wish, text, error) ? "ok\n" + text + "\n" : error_answer(error);
}

std::string list_invitations(const Authority& authority) {
    std::string text = "ok\nID        STATE      USED     EXPIRES               NAME\n";
    for (const Authority::Listed& one : authority.invitations()) {
        char expires[32] = {};
        std::tm parts{};
        ::gmtime_r(&one.expires, &parts);
        std::strftime(expires, sizeof expires, "%Y-%m-%d %H:%M UTC", &parts);
        text +=
            formatted("{}  {:9}  {:7}  {}  {}{}\n", one.id, to_text(one.state), formatted("{}/{}", one.used, one.uses),
                      expires, one.name, one.group ? formatted(" (group {})", *one.group) : "");
    }
    return text;
}

// With certificates of the operator's PKI, also their serial numbers.
std::string list_members(pccl::real::MasterRuntime& master) {
    const Authority* const authority = master.authority();
    std::string text = formatted("ok\nPEER      GROUP  ADDRESS                NAME{}\n",
                                 authority == nullptr ? " (SERIAL)" : "");
    const auto name_of = [&](const pccl::core::Uuid& peer) -> std::string {
        if (authority != nullptr) return authority->name_of_peer(peer).value_or("?");
        const auto shown = master.revocations()->shown_by(peer);
        return shown ? formatted("{} ({})", shown->name, shown->serial) : "?";
    };
    const bool answered = master.look_at_status([&](const pccl::core::MasterStatus& status) {
        for (const auto& peer : status.peers) {
            text += formatted("{}  {:5}  {:21}  {}\n", pccl::core::short_name(peer.uuid), peer.group,
                              pccl::core::to_text(peer.endpoint), name_of(peer.uuid));
        }
    });
    return answered ? text : error_answer("the master does not answer; its log says why");
}

}  // namespace

AdminServer::~AdminServer() {
    if (thread_.joinable()) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t ignored = ::write(stop_, &one, sizeof one);
        thread_.join();
    }
    if (listener_ >= 0) ::close(listener_);
    if (stop_ >= 0) ::close(stop_);
    if (!path_.empty()) SocketFolder(path_).remove_socket();
}

bool AdminServer::start(const std::string& state_directory, std::string& error) {
    const SocketFolder folder(state_directory);
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    folder.remove_socket();
    const sockaddr_un name = folder.address();
    // The folder has mode 0700 already.
    if (!folder.exists() || stop_ < 0 || listener_ < 0 ||
        ::bind(listener_, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 || ::listen(listener_, 16) != 0) {
        error = formatted("cannot make the admin socket in {}/security: {}", state_directory, std::strerror(errno));
        return false;
    }
    path_ = state_directory;
    const pccl::real::SignalsBlocked blocked;
    thread_ = std::thread([this] { serve(); });
    return true;
}

void AdminServer::serve() {
    pccl::real::name_this_thread("pccl-admin");
    for (;;) {
        pollfd waiting[] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
        if (::poll(waiting, 2, -1) < 0) continue;
        if (waiting[1].revents != 0) return;
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) {
            // Perhaps out of descriptors: then the listener stays readable.
            ::poll(&waiting[1], 1, accept_pause_ms);
            continue;
        }
        limit_waits(client, patience);
        try {
            answer(client);
        } catch (const std::exception&) {
            // No memory now, perhaps for the next request. The run must not end because of it.
        }
        ::close(client);
    }
}

void AdminServer::answer(int client) {
    std::string line;
    if (!read_all(client, line, request_max, true, patience)) return;
    send_all(client, carry_out(line), patience);
}

std::string AdminServer::carry_out(const std::string& line) {
    Authority* const authority = master_.authority();
    std::istringstream words(line);
    std::string verb, what, error;
    words >> verb;
    if (authority == nullptr && (verb == "invite" || verb == "invites" || verb == "withdraw"))
        return error_answer("this run has certificates of the operator's own PKI, and no invitations");
    if (verb == "invite") return invite(*authority, words, listening_);
    if (verb == "invites") return list_invitations(*authority);
    if (verb == "members") return list_members(master_);
    words >> what;
    if (verb == "withdraw")
        return authority->withdraw(what, error) ? formatted("ok\ninvitation {} is withdrawn\n", what)
                                               : error_answer(error);
    if (verb == "revoke") {
        std::size_t removed = 0;
        return master_.revoke(what, removed, error)
                   ? formatted("ok\n{} is revoked; {} peer id(s) had its certificates\n", what, removed)
                   : error_answer(error);
    }
    return error_answer("the master does not know this command; do both have the same version?");
}

bool ask_master(const std::string& state_directory, const std::string& line, std::string& text) {
    const SocketFolder folder(state_directory);
    if (!folder.exists()) {
        text = formatted("no secure run has used the state directory {} ({}); start its master with --secure",
                         state_directory, std::strerror(errno));
        return false;
    }
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un name = folder.address();
    if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
        text = formatted("the master of {} does not run on this host, does not listen yet, or belongs to another user "
                         "({}); start it, and wait for its line 'listening on'",
                         state_directory, std::strerror(errno));
        if (socket >= 0) ::close(socket);
        return false;
    }
    limit_waits(socket, client_patience);
    std::string answer;
    const bool answered =
        send_all(socket, line + "\n", client_patience) && read_all(socket, answer, answer_max, false, client_patience);
    ::close(socket);
    const std::size_t end = answer.find('\n');
    if (!answered || end == std::string::npos) {
        text = "the master gave no answer; its log says why";
        return false;
    }
    text = answer.substr(end + 1);
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return answer.substr(0, end) == "ok";
}

}  // namespace pccl_master
