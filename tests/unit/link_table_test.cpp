// The table of a peer's connections: what is in it, what is dead, and what is given up in its middle.
#include "core/links/link_table.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace pccl::core;

namespace {

class Table : private LinkOwner {
public:
    Table() { turn.begin(second, effects); }
    LinkId dial(Link::Purpose purpose = Link::Purpose::outgoing) {
        return links.dial(purpose, Uuid{}, 0, Endpoint{}, LinkPass{});
    }
    LinkId open() {
        const LinkId id = dial();
        links.at(id).stage = Link::Stage::open;
        return id;
    }
    template <class Kind>
    std::size_t count() const {
        std::size_t found = 0;
        for (const Effect& effect : effects) found += std::holds_alternative<Kind>(effect) ? 1 : 0;
        return found;
    }
    std::vector<LinkId> dead(Duration master_dial = 3 * second) {
        std::vector<LinkId> ids;
        for (const auto& [id, why] : links.examine(master_dial, [&](LinkId link, Link&) { beaten.push_back(link); }))
            ids.push_back(id);
        return ids;
    }

    Limits limits;
    Timeouts timeouts;
    Effects effects;
    Turn turn{limits, timeouts, 1};
    Identity who;
    std::vector<LinkId> lost;
    std::vector<LinkId> beaten;
    LinkTable links{turn, who, *this};

private:
    void link_lost(LinkId id, const Link&, const std::string&, bool) override {
        CHECK_FALSE(links.contains(id));  // it is out of the table before anybody is told
        lost.push_back(id);
    }
};

}  // namespace

TEST_CASE("a link is in the table from its dial to its loss, and its loss is told once") {
    Table table;
    const LinkId id = table.dial();
    CHECK(table.links.contains(id));
    CHECK_FALSE(table.links.is_open(id));
    table.links.lost(id, "refused", true);
    table.links.lost(id, "refused", true);
    table.links.drop(id, "late");
    CHECK(table.lost == std::vector<LinkId>{id});
    CHECK(table.count<CloseLink>() == 0);
    CHECK(table.dial() != id);
}

TEST_CASE("each stage has its patience") {
    Table table;
    const LinkId dialled = table.dial();
    const LinkId master = table.dial(Link::Purpose::master);
    const LinkId greeting = table.dial();
    table.links.at(greeting).stage = Link::Stage::greeting;
    const LinkId open = table.open();
    table.turn.now += table.timeouts.dial + 1;
    CHECK(table.dead(8 * second) == std::vector<LinkId>{dialled});
    table.turn.now = second + table.timeouts.handshake + 1;
    CHECK(table.dead(8 * second) == std::vector<LinkId>{dialled, greeting});
    table.turn.now = second + table.timeouts.peer + 1;
    CHECK(table.dead(20 * second) == std::vector<LinkId>{dialled, greeting, open});
    CHECK(table.dead(8 * second) == std::vector<LinkId>{dialled, master, greeting, open});
}

TEST_CASE("a heartbeat is due on each open link, whatever else is sent on it") {
    Table table;
    const LinkId open = table.open();
    table.dial();
    table.turn.now += table.timeouts.heartbeat() - 1;
    table.dead();
    CHECK(table.beaten.empty());
    table.turn.now += 1;
    table.dead();
    table.dead();
    CHECK(table.beaten == std::vector<LinkId>{open});
}

TEST_CASE("time in which the machine slept is nobody's silence") {
    Table table;
    table.open();
    table.turn.now += 2 * table.timeouts.peer;
    table.links.slept(2 * table.timeouts.peer);
    CHECK(table.dead().empty());
}

TEST_CASE("what an operation moves is given up, but not what lands in a reserve") {
    Table table;
    const LinkId sends = table.open(), receives = table.open(), early = table.open(), other = table.open();
    table.links.at(sends).sending.op = 5;
    table.links.at(receives).receiving.op = 5;
    table.links.at(early).receiving.op = 5;
    table.links.at(early).receiving.cell = 0;
    table.links.at(other).sending.op = 6;
    table.links.release(5);
    table.links.release(5);
    CHECK(table.count<CancelSend>() == 1);
    CHECK(table.count<RedirectReceive>() == 1);
    CHECK(table.links.at(sends).sending.dropped);
    CHECK_FALSE(table.links.at(early).receiving.dropped);
    CHECK_FALSE(table.links.at(other).sending.dropped);
}

TEST_CASE("who closes on purpose says so, unless nobody is there yet") {
    Table table;
    const LinkId open = table.open(), dialling = table.dial();
    table.links.close_on_purpose(open, table.links.at(open));
    CHECK(table.count<SendControl>() == 1);
    table.links.close_on_purpose(dialling, table.links.at(dialling));
    CHECK(table.count<SendControl>() == 1);
    CHECK(table.count<CloseLink>() == 2);
    CHECK(table.lost.empty());
}

TEST_CASE("a caller whose certificate names another peer is not the one that its hello names") {
    Table table;
    const auto why = [&](LinkId id, std::uint8_t number) {
        Uuid from;
        from.bytes.fill(number);
        return table.links.why_not_the_caller(table.links.at(id), from);
    };
    Uuid one;
    one.bytes.fill(1);
    table.links.accept(LinkAccepted{2, Endpoint{}, one}, false);
    table.links.accept(LinkAccepted{4, Endpoint{}}, false);
    CHECK(why(2, 1).empty());
    CHECK(why(2, 2).find("certificate names") != std::string::npos);
    CHECK(why(4, 2).empty());  // nobody has authenticated it; its pass is examined later
    table.links.revoke(one);
    CHECK_FALSE(table.links.contains(2));
    table.links.accept(LinkAccepted{6, Endpoint{}, one}, false);
    CHECK_FALSE(table.links.contains(6));
    CHECK(why(4, 1).find("revoked") != std::string::npos);
    table.links.forget_revoked();
    CHECK(why(4, 1).empty());
}

TEST_CASE("links with a revoked peer are closed, whoever dialled; others stay") {
    Table table;
    Uuid one, two;
    one.bytes.fill(1);
    two.bytes.fill(2);
    const LinkId to_one = table.open(), to_two = table.open(), master = table.dial(Link::Purpose::master);
    table.links.at(to_one).remote = one;
    table.links.at(to_two).remote = two;
    table.links.accept(LinkAccepted{2, Endpoint{}, one}, false);
    table.links.at(2).remote = one;
    table.links.accept(LinkAccepted{4, Endpoint{}, one}, false);  // has said nothing yet
    table.links.accept(LinkAccepted{6, Endpoint{}, two}, false);
    table.links.revoke(one);
    CHECK(table.lost == std::vector<LinkId>{to_one, 2, 4});
    CHECK(table.links.is_revoked(one));
    CHECK(table.links.contains(6));
    CHECK(table.links.contains(to_two));
    CHECK(table.links.contains(master));
    CHECK(table.count<CloseLink>() == 3);
}
