#include "harness/real/facts.hpp"

#include "core/wire/causes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <unistd.h>

namespace pccl::harness {

using namespace core;

namespace {

enum class Record : std::uint8_t {
    life,
    vote_begins,
    vote_ends,
    launch_begins,
    launch_ends,
    sync_begins,
    sync_ends,
    waits_in,
    violated,
    counters
};

constexpr std::size_t record_bytes_max = std::size_t{1} << 32;

// --- one coding for both directions ----------------------------------------------------------------------------------

class Encoder {
public:
    explicit Encoder(std::string& out) : out_(out) {}
    template <class T>
    requires(std::is_trivially_copyable_v<T>) void operator()(const T& value) {
        out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void operator()(const std::string& text) { bytes(text.data(), text.size()); }
    void operator()(const std::vector<std::uint8_t>& data) { bytes(data.data(), data.size()); }
    void operator()(const Cause& cause) {
        proto::Cause message;
        write(cause, message);
        (*this)(message.SerializeAsString());
    }
    void operator()(const std::vector<Cause>& causes) {
        (*this)(static_cast<std::uint64_t>(causes.size()));
        for (const Cause& cause : causes) (*this)(cause);
    }

private:
    void bytes(const void* data, std::size_t count) {
        (*this)(static_cast<std::uint64_t>(count));
        if (count != 0) out_.append(static_cast<const char*>(data), count);
    }
    std::string& out_;
};

class Decoder {
public:
    Decoder(const char* data, std::size_t count) : data_(data), left_(count) {}
    template <class T>
    requires(std::is_trivially_copyable_v<T>) void operator()(T& value) {
        if (!good_ || left_ < sizeof value) {
            good_ = false;
            return;
        }
        std::memcpy(&value, data_, sizeof value);
        data_ += sizeof value;
        left_ -= sizeof value;
    }
    void operator()(std::string& text) { bytes(text); }
    void operator()(std::vector<std::uint8_t>& data) { bytes(data); }
    void operator()(Cause& cause) {
        std::string encoded;
        (*this)(encoded);
        proto::Cause message;
        good_ = good_ && message.ParseFromString(encoded);
        cause = message.kind() == 0 ? Cause{} : cause_of(message);
    }
    void operator()(std::vector<Cause>& causes) {
        std::uint64_t count = 0;
        (*this)(count);
        for (; good_ && count != 0; --count) (*this)(causes.emplace_back());
    }
    bool done() const { return good_ && left_ == 0; }

private:
    template <class Container>
    void bytes(Container& target) {
        std::uint64_t count = 0;
        (*this)(count);
        if (!good_ || left_ < count) {
            good_ = false;
            return;
        }
        target.assign(data_, data_ + count);
        data_ += count;
        left_ -= count;
    }
    const char* data_;
    std::size_t left_;
    bool good_ = true;
};

// The same fields in the same order, for Encoder and Decoder.
template <class Code, class C>
void code_completion(Code& code, C& c) {
    code(c.result);
    code(c.cause);
    code(c.attributes);
    code(c.epoch);
    code(c.pending);
    code(c.world);
    code(c.sent_bytes);
    code(c.received_bytes);
    code(c.revision);
}
template <class Code, class L>
void code_life(Code& code, L& life) {
    code(life.process);
    code(life.group);
    code(life.asked_at);
    code(life.connected_at);
    code(life.member_until);
    code(life.lost);
    code(life.node);
    code(life.refused);
    code(life.refused_revision);
    code(life.causes);
}
template <class Code, class F>
void code_vote_begin(Code& code, F& fact) {
    code(fact.kind);
    code(fact.process);
    code(fact.life);
    code(fact.begin);
}
template <class Code, class F>
void code_vote_end(Code& code, F& fact) {
    code(fact.end);
    code_completion(code, fact.completion);
}
template <class Code, class F>
void code_launch_begin(Code& code, F& fact) {
    code(fact.process);
    code(fact.life);
    code(fact.group);
    code(fact.tag);
    code(fact.shape.count);
    code(fact.shape.type);
    code(fact.shape.op);
    code(fact.shape.quantization);
    code(fact.in_place);
    code(fact.begin);
    code(fact.input);
}
template <class Code, class F>
void code_launch_end(Code& code, F& fact) {
    code(fact.end);
    code_completion(code, fact.completion);
    code(fact.output);
}
template <class Code, class F>
void code_sync_begin(Code& code, F& fact) {
    code(fact.process);
    code(fact.life);
    code(fact.group);
    code(fact.begin);
    code(fact.revision);
    code(fact.strategy);
    code(fact.before);
    code(fact.own_before);
}
template <class Code, class F>
void code_sync_end(Code& code, F& fact) {
    code(fact.end);
    code_completion(code, fact.completion);
    code(fact.after);
    code(fact.own_after);
}

template <class Fill>
void append(std::string& out, Record kind, std::uint64_t index, Fill fill) {
    std::string body;
    Encoder code(body);
    code(kind);
    code(index);
    fill(code);
    Encoder frame(out);
    frame(body);
}

}  // namespace

// --- writing ---------------------------------------------------------------------------------------------------------

template <class Fact, class Begin, class End>
void FactsWriter::write_list(const Facts<Fact>& facts, Progress& progress, Begin begin, End end) {
    for (; progress.begun < facts.size(); ++progress.begun) {
        begin(progress.begun, facts[progress.begun]);
        progress.open.push_back(progress.begun);
    }
    std::erase_if(progress.open, [&](std::size_t index) {
        if (facts[index].end == open_end) return false;
        end(index, facts[index]);
        return true;
    });
}

bool FactsWriter::write(const Ledger& ledger, const Counters& counters) {
    lives_.resize(ledger.lives.size());
    for (std::size_t i = 0; i < ledger.lives.size(); ++i) {
        std::string record;
        append(record, Record::life, i, [&](Encoder& code) { code_life(code, ledger.lives[i]); });
        if (record == lives_[i]) continue;
        pending_ += record;
        lives_[i] = std::move(record);
    }
    write_list(
        ledger.votes, votes_,
        [&](std::size_t i, const VoteFact& f) {
            append(pending_, Record::vote_begins, i, [&](Encoder& code) { code_vote_begin(code, f); });
        },
        [&](std::size_t i, const VoteFact& f) {
            append(pending_, Record::vote_ends, i, [&](Encoder& code) { code_vote_end(code, f); });
        });
    write_list(
        ledger.launches, launches_,
        [&](std::size_t i, const LaunchFact& f) {
            append(pending_, Record::launch_begins, i, [&](Encoder& code) { code_launch_begin(code, f); });
        },
        [&](std::size_t i, const LaunchFact& f) {
            append(pending_, Record::launch_ends, i, [&](Encoder& code) { code_launch_end(code, f); });
        });
    write_list(
        ledger.syncs, syncs_,
        [&](std::size_t i, const SyncFact& f) {
            append(pending_, Record::sync_begins, i, [&](Encoder& code) { code_sync_begin(code, f); });
        },
        [&](std::size_t i, const SyncFact& f) {
            append(pending_, Record::sync_ends, i, [&](Encoder& code) { code_sync_end(code, f); });
        });
    append(pending_, Record::counters, 0, [&](Encoder& code) { code(counters); });
    for (std::size_t at = 0; at < pending_.size();) {
        const ssize_t count = ::write(descriptor_, pending_.data() + at, pending_.size() - at);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        at += static_cast<std::size_t>(count);
    }
    pending_.clear();
    return true;
}

void FactsWriter::waits_in(const std::string& call, Instant since) {
    append(pending_, Record::waits_in, 0, [&](Encoder& code) {
        code(call);
        code(since);
    });
}

void FactsWriter::violated(const std::string& oracle, const std::string& reason) {
    append(pending_, Record::violated, 0, [&](Encoder& code) {
        code(oracle);
        code(reason);
    });
}

// --- reading ---------------------------------------------------------------------------------------------------------

namespace {

bool read_file(const std::string& path, std::string& bytes) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return false;
    char block[65'536];
    for (std::size_t count; (count = std::fread(block, 1, sizeof block, file)) != 0;) bytes.append(block, count);
    const bool good = std::ferror(file) == 0;
    std::fclose(file);
    return good;
}

template <class Fact, class Fill>
bool begins(Facts<Fact>& facts, std::uint64_t index, Fill fill) {
    if (index != facts.size()) return false;
    facts.emplace_back();
    fill(facts.back());
    return true;
}
template <class Fact, class Fill>
bool ends(Facts<Fact>& facts, std::uint64_t index, Fill fill) {
    if (index >= facts.size()) return false;
    fill(facts[index]);
    return true;
}

bool read_record(Decoder& code, ProcessFacts& facts) {
    Record kind{};
    std::uint64_t index = 0;
    code(kind);
    code(index);
    Ledger& ledger = facts.ledger;
    bool good = true;
    switch (kind) {
    case Record::life:
        if (index > ledger.lives.size()) return false;
        if (index == ledger.lives.size()) ledger.lives.emplace_back();
        code_life(code, ledger.lives[index]);
        break;
    case Record::vote_begins: good = begins(ledger.votes, index, [&](VoteFact& f) { code_vote_begin(code, f); }); break;
    case Record::vote_ends: good = ends(ledger.votes, index, [&](VoteFact& f) { code_vote_end(code, f); }); break;
    case Record::launch_begins:
        good = begins(ledger.launches, index, [&](LaunchFact& f) { code_launch_begin(code, f); });
        break;
    case Record::launch_ends:
        good = ends(ledger.launches, index, [&](LaunchFact& f) { code_launch_end(code, f); });
        break;
    case Record::sync_begins: good = begins(ledger.syncs, index, [&](SyncFact& f) { code_sync_begin(code, f); }); break;
    case Record::sync_ends: good = ends(ledger.syncs, index, [&](SyncFact& f) { code_sync_end(code, f); }); break;
    case Record::waits_in:
        code(facts.waits_in);
        code(facts.waits_since);
        break;
    case Record::violated: {
        sim::Violation violation;
        code(violation.oracle);
        code(violation.reason);
        if (facts.violation.oracle.empty()) facts.violation = std::move(violation);
        break;
    }
    case Record::counters: code(facts.counters); break;
    default: return false;
    }
    return good && code.done();
}

template <class Fact>
void add_facts(Facts<Fact>& all, Facts<Fact> some, std::uint32_t first_life) {
    for (Fact& fact : some) {
        fact.life += first_life;
        all.push_back(std::move(fact));
    }
}

template <class Fact>
void order(Facts<Fact>& facts) {
    std::stable_sort(facts.begin(), facts.end(), [](const Fact& x, const Fact& y) { return x.begin < y.begin; });
}

}  // namespace

std::optional<ProcessFacts> read_facts(const std::string& path) {
    std::string bytes;
    if (!read_file(path, bytes)) return std::nullopt;
    ProcessFacts facts;
    std::size_t at = 0;
    while (bytes.size() - at >= sizeof(std::uint64_t)) {
        std::uint64_t count = 0;
        std::memcpy(&count, bytes.data() + at, sizeof count);
        if (count > record_bytes_max) return std::nullopt;
        at += sizeof count;
        if (bytes.size() - at < count) break;
        Decoder code(bytes.data() + at, count);
        if (!read_record(code, facts)) return std::nullopt;
        at += count;
    }
    return facts;
}

Ledger merge_facts(const std::vector<ProcessFacts>& processes) {
    Ledger all;
    for (const ProcessFacts& facts : processes) {
        const auto first_life = static_cast<std::uint32_t>(all.lives.size());
        all.lives.insert(all.lives.end(), facts.ledger.lives.begin(), facts.ledger.lives.end());
        add_facts(all.votes, facts.ledger.votes, first_life);
        add_facts(all.launches, facts.ledger.launches, first_life);
        add_facts(all.syncs, facts.ledger.syncs, first_life);
    }
    // All processes have ended by now.
    for (Life& life : all.lives) life.ended = true;
    all.attributes_read_late = true;
    order(all.votes);
    order(all.launches);
    order(all.syncs);
    return all;
}

}  // namespace pccl::harness
