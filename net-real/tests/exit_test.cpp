// A process that ends while a master of a secure run is alive in it: threads of the library use TLS while exit handlers
// of the host run.
//
// Each test forks before this process has used OpenSSL or has made a thread. The order of exit handlers in the child is
// that of a host: its own one comes after that of OpenSSL.
#include "net-real/master_runtime.hpp"
#include "net-real/settings.hpp"
#include "net-real/tests/temporary_folder.hpp"
#include "net-real/tls/context.hpp"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <cstdlib>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/crypto.h>

using namespace pccl;
using namespace pccl::real;

namespace {

enum : int { fine = 0, no_master = 3, no_hello = 4, no_answer = 5, still_listens = 6 };

MasterRuntime* master = nullptr;  // never destroyed, as in a program that leaves it to the end of the process
std::string client_hello;
bool host_was_first = false;

// Begins a TLS connection. Returns the first byte of the answer.
constexpr int nobody_listens = -1, closed = -2;
int first_byte() {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(master->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    unsigned char byte = 0;
    int result = nobody_listens;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        const ssize_t sent = ::send(socket, client_hello.data(), client_hello.size(), MSG_NOSIGNAL);
        result = sent > 0 && ::recv(socket, &byte, 1, 0) == 1 ? byte : closed;
    }
    ::close(socket);
    return result;
}

constexpr int handshake_record = 22;

// OpenSSL has freed its tables, or has left it.
void last_handler() {
    const int byte = first_byte();
    if (host_was_first ? byte != nobody_listens : byte != handshake_record)
        ::_exit(host_was_first ? still_listens : no_answer);
}

std::string make_hello(const tls::KeyHash& authority) {
    std::string error;
    const auto context = tls::Context::make_newcomer(authority, std::nullopt, error);
    if (context == nullptr) return {};
    const tls::SslPtr ssl = context->connection(true, tls::Protocol::enrolment);
    BIO* const in = BIO_new(BIO_s_mem());
    BIO* const out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);
    SSL_do_handshake(ssl.get());
    char* data = nullptr;
    const long bytes = BIO_get_mem_data(out, &data);
    return {data, static_cast<std::size_t>(bytes)};
}

#ifdef __SANITIZE_THREAD__
}  // namespace
// Nobody joins the master's thread in a process that ends.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
    return "report_thread_leaks=0";
}
namespace {
#endif

[[noreturn]] void run_child(const std::string& folder) {
    std::atexit(last_handler);
    if (host_was_first) OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
    MasterSettings settings;
    settings.state_directory = folder;
    settings.secure = true;
    master = new MasterRuntime(settings);
    core::Endpoint loopback;
    std::string error;
    if (!parse_endpoint("127.0.0.1", loopback)) ::_exit(no_master);
    loopback.port = 0;
    if (!master->bind(loopback, error) || !master->run(error)) ::_exit(no_master);
    client_hello = make_hello(master->authority()->hash());
    if (client_hello.empty() || first_byte() != handshake_record) ::_exit(no_hello);
    std::exit(fine);
}

void end_a_process() {
    const TemporaryFolder folder;
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) run_child(folder.path());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO("signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == fine);
}

}  // namespace

TEST_CASE("a secure master answers until its process has ended") {
    host_was_first = false;
    end_a_process();
}

TEST_CASE("a secure master ends before OpenSSL, if the host has used OpenSSL first") {
    host_was_first = true;
    end_a_process();
}
