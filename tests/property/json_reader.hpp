// Reads JSON strictly (RFC 8259) into values, and refuses whatever a browser or Perfetto would refuse.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace json_reader {

struct Value {
    enum class Kind { nothing, boolean, number, string, array, object } kind = Kind::nothing;
    std::string text;  // string, or the number as it was written
    bool yes = false;
    std::vector<Value> items;
    std::map<std::string, Value> members;

    const Value& operator[](const std::string& name) const {
        const auto found = members.find(name);
        if (found == members.end()) throw std::runtime_error("no member " + name);
        return found->second;
    }
    bool has(const std::string& name) const { return members.contains(name); }
    std::int64_t number() const { return std::strtoll(text.c_str(), nullptr, 10); }
};

class Reader {
public:
    explicit Reader(std::string_view text) : text_(text) {}
    Value read() {
        Value value = any();
        space();
        if (at_ != text_.size()) refuse("text behind the value");
        return value;
    }

private:
    [[noreturn]] void refuse(const std::string& why) const {
        throw std::runtime_error("JSON at " + std::to_string(at_) + ": " + why + ": " +
                                 std::string(text_.substr(at_, 40)));
    }
    void space() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
    }
    char peek() {
        space();
        if (at_ == text_.size()) refuse("the end");
        return text_[at_];
    }
    void expect(char c) {
        if (peek() != c) refuse(std::string("not ") + c);
        ++at_;
    }
    bool word(std::string_view wanted) {
        if (text_.substr(at_, wanted.size()) != wanted) return false;
        at_ += wanted.size();
        return true;
    }
    Value any() {
        Value value;
        const char c = peek();
        if (c == '{') {
            value.kind = Value::Kind::object;
            list('{', '}', [&] {
                peek();
                std::string name = string();
                expect(':');
                if (!value.members.emplace(std::move(name), any()).second) refuse("a name twice");
            });
        } else if (c == '[') {
            value.kind = Value::Kind::array;
            list('[', ']', [&] { value.items.push_back(any()); });
        } else if (c == '"') {
            value.kind = Value::Kind::string;
            value.text = string();
        } else if (word("true") || word("false")) {
            value.kind = Value::Kind::boolean;
            value.yes = text_[at_ - 2] == 'u';
        } else if (!word("null")) {
            value.kind = Value::Kind::number;
            value.text = number();
        }
        return value;
    }
    template <class Item>
    void list(char open, char close, Item item) {
        expect(open);
        if (peek() == close) {
            ++at_;
            return;
        }
        for (;;) {
            item();
            const char c = peek();
            ++at_;
            if (c == close) return;
            if (c != ',') refuse("no comma");
        }
    }
    std::string string() {
        expect('"');
        std::string out;
        for (;; ++at_) {
            if (at_ >= text_.size()) refuse("a string without end");
            const char c = text_[at_];
            if (c == '"') break;
            if (static_cast<unsigned char>(c) < 0x20) refuse("a control character");
            if (c != '\\') {
                out += c;
                continue;
            }
            if (++at_ >= text_.size()) refuse("a string without end");
            static constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
            const std::size_t known = names.find(text_[at_]);
            if (known != std::string_view::npos) {
                out += meanings[known];
            } else if (text_[at_] == 'u' && at_ + 4 < text_.size()) {
                const unsigned long code = std::strtoul(std::string(text_.substr(at_ + 1, 4)).c_str(), nullptr, 16);
                out += code < 0x80 ? std::string(1, static_cast<char>(code)) : std::string("?");
                at_ += 4;
            } else {
                refuse("an escape that is none");
            }
        }
        ++at_;
        return out;
    }
    std::string number() {
        const std::size_t begin = at_;
        const auto digits = [&] {
            const std::size_t first = at_;
            while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
            if (at_ == first) refuse("not a value");
            return at_ - first;
        };
        if (text_[at_] == '-') ++at_;
        const bool zero = at_ < text_.size() && text_[at_] == '0';
        if (digits() > 1 && zero) refuse("a leading zero");
        if (at_ < text_.size() && text_[at_] == '.') {
            ++at_;
            digits();
        }
        return std::string(text_.substr(begin, at_ - begin));
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

inline Value read(std::string_view text) { return Reader(text).read(); }

}  // namespace json_reader
