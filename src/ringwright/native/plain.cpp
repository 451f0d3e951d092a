// The binary opcodes of pickled plain data, fast. What this does not know, or what is damaged or too large, is left to the
// Python twin (sources/flight_recorder/opcodes.py), which reads again from the start, answers or refuses, and says why:
// there is one place for the rules, and no opcode here can name or call anything either.
#include <Python.h>
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace nb = nanobind;

namespace {

// As in the twin: whatever goes beyond is refused there.
constexpr std::size_t kMostContainers = 4u << 20;
constexpr std::size_t kMostOpen = 100;
constexpr std::size_t kMostMemo = 8u << 20;
constexpr std::size_t kMostNumberBytes = 64;

class Machine {
 public:
  Machine(const unsigned char* data, std::size_t size) : at_(data), end_(data + size) { stack_.reserve(4096); }
  ~Machine() {
    for (PyObject* item : stack_) Py_DECREF(item);
    for (PyObject* item : memo_) Py_XDECREF(item);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The value, or nullptr without a Python error where the twin must decide.
  PyObject* run() {
    while (at_ < end_) {
      const unsigned char code = *at_++;
      if (code == '.') return pop();
      if (!step(code)) return nullptr;
    }
    return nullptr;
  }

 private:
  bool has(std::uint64_t count) const { return count <= static_cast<std::uint64_t>(end_ - at_); }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  bool number(int size, std::uint64_t& value) {
    if (!has(size)) return false;
    value = 0;
    for (int i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(at_[i]) << (8 * i);
    at_ += size;
    return true;
  }

  bool push(PyObject* item) {  // steals the reference
    if (item == nullptr) return false;
    stack_.push_back(item);
    return true;
  }

  bool push_new(PyObject* container) { return ++containers_ <= kMostContainers ? push(container) : drop(container); }
  static bool drop(PyObject* item) {
    Py_XDECREF(item);
    return false;
  }

  PyObject* pop() {
    if (stack_.size() <= floor()) return nullptr;
    PyObject* item = stack_.back();
    stack_.pop_back();
    return item;
  }

  bool push_shared(PyObject* item) {
    Py_INCREF(item);
    return push(item);
  }

  bool text(int size_bytes) {
    std::uint64_t size;
    if (!number(size_bytes, size) || !has(size)) return false;
    const char* begin = reinterpret_cast<const char*>(at_);
    at_ += size;
    return push(PyUnicode_DecodeUTF8(begin, static_cast<Py_ssize_t>(size), "replace"));
  }

  bool bytes(int size_bytes) {
    std::uint64_t size;
    if (!number(size_bytes, size) || !has(size)) return false;
    const char* begin = reinterpret_cast<const char*>(at_);
    at_ += size;
    return push(PyBytes_FromStringAndSize(begin, static_cast<Py_ssize_t>(size)));
  }

  bool integer() {  // LONG1
    std::uint64_t size;
    if (!number(1, size) || size > 8 || size > kMostNumberBytes || !has(size)) return false;
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < size; ++i) value |= static_cast<std::uint64_t>(at_[i]) << (8 * i);
    if (size > 0 && size < 8 && (at_[size - 1] & 0x80)) value |= ~std::uint64_t{0} << (8 * size);
    at_ += size;
    return push(PyLong_FromLongLong(static_cast<long long>(value)));
  }

  bool real() {
    if (!has(8)) return false;
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | at_[i];
    at_ += 8;
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return push(PyFloat_FromDouble(value));
  }

  bool unsigned_number(int size) {
    std::uint64_t value;
    return number(size, value) && push(PyLong_FromUnsignedLongLong(value));
  }

  bool signed_number() {
    std::uint64_t value;
    return number(4, value) && push(PyLong_FromLong(static_cast<std::int32_t>(value)));
  }

  bool mark() {
    if (marks_.size() >= kMostOpen) return false;
    marks_.push_back(stack_.size());
    return true;
  }

  bool tuple(std::size_t count) {
    if (stack_.size() < floor() + count) return false;
    PyObject* made = PyTuple_New(static_cast<Py_ssize_t>(count));
    if (made == nullptr) return false;
    for (std::size_t i = 0; i < count; ++i) PyTuple_SetItem(made, i, stack_[stack_.size() - count + i]);
    stack_.resize(stack_.size() - count);
    return push_new(made);
  }

  bool tuple_from_mark() {
    if (marks_.empty()) return false;
    const std::size_t start = marks_.back();
    marks_.pop_back();
    return tuple(stack_.size() - start);
  }

  void cut(std::size_t start) {
    for (std::size_t i = start; i < stack_.size(); ++i) Py_DECREF(stack_[i]);
    stack_.resize(start);
  }

  bool appends() {
    if (marks_.empty()) return false;
    const std::size_t start = marks_.back();
    marks_.pop_back();
    if (start <= floor() || !PyList_CheckExact(stack_[start - 1])) return false;
    for (std::size_t i = start; i < stack_.size(); ++i)
      if (PyList_Append(stack_[start - 1], stack_[i]) != 0) return false;
    cut(start);
    return true;
  }

  bool append() {
    if (stack_.size() < floor() + 2 || !PyList_CheckExact(stack_[stack_.size() - 2])) return false;
    if (PyList_Append(stack_[stack_.size() - 2], stack_.back()) != 0) return false;
    cut(stack_.size() - 1);
    return true;
  }

  bool fill(std::size_t start) {
    if (start <= floor() || (stack_.size() - start) % 2 != 0 || !PyDict_CheckExact(stack_[start - 1])) return false;
    for (std::size_t i = start; i < stack_.size(); i += 2) {
      if (!PyUnicode_CheckExact(stack_[i])) return false;  // other keys are few, and counted by the twin
      if (PyDict_SetItem(stack_[start - 1], stack_[i], stack_[i + 1]) != 0) return false;
    }
    cut(start);
    return true;
  }

  bool setitems() {
    if (marks_.empty()) return false;
    const std::size_t start = marks_.back();
    marks_.pop_back();
    return fill(start);
  }

  bool setitem() { return stack_.size() >= floor() + 3 && fill(stack_.size() - 2); }

  bool remember(std::uint64_t slot) {  // writers number their memo from 0 up; other orders are the twin's
    if (stack_.empty() || slot > memo_.size() || slot >= kMostMemo) return false;
    Py_INCREF(stack_.back());
    if (slot == memo_.size()) {
      memo_.push_back(stack_.back());
    } else {
      Py_DECREF(memo_[slot]);
      memo_[slot] = stack_.back();
    }
    return true;
  }

  bool remember_sized(int size) {
    std::uint64_t slot;
    return number(size, slot) && remember(slot);
  }

  bool recall(int size) {
    std::uint64_t slot;
    return number(size, slot) && slot < memo_.size() && push_shared(memo_[slot]);
  }

  bool protocol() {
    std::uint64_t version;
    return number(1, version) && version <= 5;
  }

  bool frame() {
    std::uint64_t size;
    return number(8, size) && has(size);
  }

  bool step(unsigned char code) {
    switch (code) {
      case 'h': return recall(1);
      case 'j': return recall(4);
      case '(': return mark();
      case 'q': return remember_sized(1);
      case 'r': return remember_sized(4);
      case 0x94: return remember(memo_.size());
      case 'X': return text(4);
      case 0x8c: return text(1);
      case 0x8d: return text(8);
      case 'K': return unsigned_number(1);
      case 'M': return unsigned_number(2);
      case 'J': return signed_number();
      case 0x8a: return integer();
      case 'G': return real();
      case 'N': return push_shared(Py_None);
      case 0x88: return push_shared(Py_True);
      case 0x89: return push_shared(Py_False);
      case ']': return push_new(PyList_New(0));
      case 'e': return appends();
      case 'a': return append();
      case '}': return push_new(PyDict_New());
      case 'u': return setitems();
      case 's': return setitem();
      case ')': return tuple(0);
      case 't': return tuple_from_mark();
      case 0x85: return tuple(1);
      case 0x86: return tuple(2);
      case 0x87: return tuple(3);
      case 'B': return bytes(4);
      case 'C': return bytes(1);
      case 0x8e: return bytes(8);
      case 0x80: return protocol();
      case 0x95: return frame();
      default: return false;
    }
  }

  const unsigned char* at_;
  const unsigned char* end_;
  std::vector<PyObject*> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PyObject*> memo_;
  std::size_t containers_ = 0;
};

nb::object load(nb::bytes data) {
  Machine machine(reinterpret_cast<const unsigned char*>(data.c_str()), data.size());
  PyObject* value = machine.run();
  if (value != nullptr) return nb::steal(value);
  PyErr_Clear();  // the twin will say what is wrong
  return nb::borrow(Py_NotImplemented);
}

}  // namespace

NB_MODULE(_plain, module) {
  module.doc() = "Pickled plain data, the fast way; see plain.cpp.";
  module.def("load", &load, nb::arg("data"), "Return the value, or NotImplemented where the Python twin must decide.");
}
