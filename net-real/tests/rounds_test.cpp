// Two loops that move payload over several connections in both directions, with and without helpers: the machines see
// the same contract, and every byte is where it belongs.
#include "net-real/crew.hpp"
#include "net-real/event_loop.hpp"

#include "core/base/random.hpp"
#include "core/numeric/kernels.hpp"
#include "net-real/tests/quiet_client.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

constexpr std::size_t links = 6;
constexpr std::uint64_t frames = 60;  // that leave on each connection, in each direction
constexpr std::size_t slice_bytes_max = 400'000;

// What the machine at `end` sends as frame `number` of connection `connection`. Both ends can work it out.
std::vector<std::uint8_t> content(unsigned end, std::size_t connection, std::uint64_t number) {
    core::Random random(1 + number + 1000 * connection + 100'000 * end);
    std::vector<std::uint8_t> bytes(random.below(4) == 0 ? random.below(2000) : random.below(slice_bytes_max));
    for (std::size_t i = 0; i < bytes.size(); i += 64) bytes[i] = static_cast<std::uint8_t>(random.next());
    return bytes;
}

// Sends its frames on each connection, cancels some of them, and takes those of the other end: some are discarded, and
// some are redirected when payload of another connection has landed. What landed is copied by a compute.
class Mover final : public QuietClient {
public:
    Mover(unsigned end, std::uint64_t seed) : end_(end), random_(seed) {}

    core::Endpoint target;  // port 0: this end accepts
    EventLoop* loop = nullptr;

    void start(core::Instant, core::Effects& out) override {
        for (std::size_t i = 0; target.port != 0 && i < links; ++i) out.push_back(core::OpenLink{2 * i + 1, target});
    }
    core::Status handle(core::Instant, const core::Event& event, core::Effects& out) override {
        const std::lock_guard lock(mutex_);
        if (const auto* opened = std::get_if<core::LinkOpened>(&event)) begin(opened->link, opened->link / 2, out);
        if (const auto* accepted = std::get_if<core::LinkAccepted>(&event)) ways_[accepted->link].number = links;
        if (const auto* control = std::get_if<core::ControlArrived>(&event))
            begin(control->link, control->body[0], out);
        if (const auto* sent = std::get_if<core::PayloadSent>(&event)) {
            Way& way = ways_.at(sent->link);
            check(way.sending, "a frame was sent that did not leave");
            check(sent->cancelled ? way.cancelled : sent->checksum == way.checksum, "the checksum of what left");
            way.sending = false;
            if (!sent->cancelled) ++way.left;
            send_next(sent->link, out);
        }
        if (const auto* bulk = std::get_if<core::BulkArrived>(&event)) arrives(*bulk, out);
        if (const auto* landed = std::get_if<core::PayloadLanded>(&event)) has_landed(*landed, out);
        if (const auto* done = std::get_if<core::ComputeDone>(&event)) computed(*done);
        if (std::holds_alternative<core::LinkClosed>(event)) check(is_done(), "a connection was lost");
        if (is_done()) done_.notify_all();
        return core::Status::ok;
    }
    void ended(const std::string& reason) override { check(reason.empty(), reason); }

    bool wait() {
        std::unique_lock lock(mutex_);
        return done_.wait_for(lock, std::chrono::seconds(100), [this] { return is_done(); });
    }
    // ---- when the loop has ended
    const std::vector<std::string>& wrong() const { return wrong_; }
    std::size_t landed = 0, dropped = 0;

private:
    struct Way {
        std::size_t number = 0;   // of the connection
        std::uint64_t left = 0;   // frames; the next one has this number, also if it was cancelled before
        std::uint64_t ended = 0;  // frames of the other end
        bool sending = false;
        bool cancelled = false;
        bool redirected = false;
        std::vector<std::uint8_t> source, place, copy;
        core::BufferId source_id = 0, place_id = 0, copy_id = 0;
        std::uint64_t checksum = 0, landed_checksum = 0;
        std::uint64_t arriving = 0;  // the number of the frame
        bool landing = false, computing = false;
    };

    void check(bool good, const std::string& what) {
        if (!good) wrong_.push_back(what);
    }
    bool is_done() const {
        if (ways_.size() != links) return false;
        return std::all_of(ways_.begin(), ways_.end(), [](const auto& one) {
            const Way& way = one.second;
            return way.left == frames && way.ended == frames && !way.computing;
        });
    }
    void begin(core::LinkId link, std::size_t number, core::Effects& out) {
        Way& way = ways_[link];
        way.number = number;
        way.place.resize(slice_bytes_max);
        way.copy.resize(slice_bytes_max);
        way.place_id = loop->buffers().register_buffer(way.place.data(), way.place.size());
        way.copy_id = loop->buffers().register_buffer(way.copy.data(), way.copy.size());
        if (target.port != 0) out.push_back(core::SendControl{link, std::string(1, static_cast<char>(number))});
        send_next(link, out);
    }
    void send_next(core::LinkId link, core::Effects& out) {
        Way& way = ways_.at(link);
        if (way.left == frames) return;
        way.source = content(end_, way.number, way.left);
        if (way.source_id != 0) loop->buffers().release_buffer(way.source_id);
        way.source_id = loop->buffers().register_buffer(way.source.data(), way.source.size());
        way.checksum = core::numeric::checksum64(way.source.data(), way.source.size());
        core::wire::BulkHeader header;
        header.op = way.left;
        header.length = static_cast<std::uint32_t>(way.source.size());
        way.sending = true;
        way.cancelled = false;
        out.push_back(core::SendPayload{link, header, {way.source_id, 0, way.source.size()}});
    }
    void arrives(const core::BulkArrived& bulk, core::Effects& out) {
        Way& way = ways_.at(bulk.link);
        way.arriving = bulk.header.op;
        way.redirected = false;
        // The place of the frame before it is still read.
        way.landing = !way.computing && random_.below(8) != 0;
        if (!way.computing) std::fill(way.place.begin(), way.place.end(), std::uint8_t{0xEE});
        if (way.landing)
            out.push_back(core::ReceivePayload{bulk.link, {way.place_id, 0, bulk.header.length}});
        else
            out.push_back(core::DiscardPayload{bulk.link});
    }
    void has_landed(const core::PayloadLanded& event, core::Effects& out) {
        using Verdict = core::PayloadLanded::Verdict;
        Way& way = ways_.at(event.link);
        const auto expected = content(1 - end_, way.number, way.arriving);
        if (event.verdict == Verdict::landed) {
            ++landed;
            check(way.landing && !way.redirected, "it landed although it was not wanted");
            check(std::equal(expected.begin(), expected.end(), way.place.begin()), "other bytes landed");
            way.computing = true;
            way.landed_checksum = event.checksum;
            const core::BufferRef from{way.place_id, 0, expected.size()}, to{way.copy_id, 0, expected.size()};
            core::Compute copy;
            copy.id = event.link;
            copy.kind = core::Compute::Kind::copy;
            copy.target = to;
            copy.a = from;
            copy.want_checksum = true;
            out.push_back(copy);
        } else {
            check(event.verdict == Verdict::discarded ? !way.landing || way.redirected
                                                      : event.verdict == Verdict::abandoned,
                  "it did not land");
            ++dropped;
            if (way.redirected)
                check(std::all_of(way.place.begin(), way.place.end(), [](std::uint8_t byte) { return byte == 0xDD; }),
                      "a place was touched after the redirect");
        }
        way.landing = false;
        if (event.verdict != Verdict::abandoned) way.ended = way.arriving + 1;
        // Something happens to other connections because of this one.
        for (auto& [id, other] : ways_) {
            if (other.landing && !other.redirected && random_.below(40) == 0) {
                other.redirected = true;
                out.push_back(core::RedirectReceive{id});
                std::fill(other.place.begin(), other.place.end(), std::uint8_t{0xDD});
            }
            if (other.sending && !other.cancelled && random_.below(60) == 0) {
                other.cancelled = true;
                out.push_back(core::CancelSend{id});
            }
        }
    }
    void computed(const core::ComputeDone& done) {
        Way& way = ways_.at(done.id);
        way.computing = false;
        check(done.checksum == way.landed_checksum, "the copy has other bytes");
    }

    const unsigned end_;
    core::Random random_;
    std::mutex mutex_;
    std::condition_variable done_;
    std::map<core::LinkId, Way> ways_;
    std::vector<std::string> wrong_;
};

}  // namespace

TEST_CASE("a crew does each job of a run once, however short the runs are") {
    const std::size_t helpers = GENERATE(0, 1, 3);
    Crew crew(helpers);
    REQUIRE(crew.size() == helpers);
    std::vector<std::uint32_t> times(100);
    for (std::uint32_t run = 1; run <= 3000; ++run) {
        const std::size_t jobs = run % times.size();
        auto work = [&](std::size_t job) { ++times[job]; };
        crew.run(jobs, work);
        for (std::size_t job = 0; job < jobs; ++job) REQUIRE(times[job] == 1);
        std::fill(times.begin(), times.end(), 0);
    }
}

TEST_CASE("a crew ends right after a run, while its helpers still look for work") {
    std::atomic<std::size_t> done{0};
    auto work = [&](std::size_t) { ++done; };
    for (std::size_t round = 0; round < 8000; ++round) {
        Crew crew(4);
        for (std::size_t run = 0; run < round % 8; ++run) crew.run(2, work);
    }
    CHECK(done == 2 * 8000 / 8 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7));
}

TEST_CASE("payload of several connections lands, is dropped and is cancelled alike with any number of threads") {
    const std::size_t threads = GENERATE(1, 2, 4);
    const bool shared = GENERATE(false, true);
    INFO(threads << " threads, shared memory: " << shared);
    LoopSettings settings;
    settings.io_threads = threads;
    settings.shared_memory.enabled = shared;
    Mover accepts(0, 1), dials(1, 2);
    EventLoop first(settings, accepts), second(settings, dials);
    accepts.loop = &first;
    dials.loop = &second;
    std::string error;
    ListenRequest request;
    request.address = core::Endpoint{};
    request.address->address[0] = 127;
    request.address->address[3] = 1;
    REQUIRE(first.listen(request, error));
    REQUIRE(first.start(error));
    dials.target = *request.address;
    dials.target.port = first.port();
    REQUIRE(second.start(error));
    CHECK(accepts.wait());
    CHECK(dials.wait());
    for (EventLoop* loop : {&first, &second}) {
        loop->request_stop();
        loop->join();
    }
    CHECK(accepts.wrong() == std::vector<std::string>{});
    CHECK(dials.wrong() == std::vector<std::string>{});
    CHECK(accepts.landed > links);
    CHECK(accepts.dropped > 0);
}
