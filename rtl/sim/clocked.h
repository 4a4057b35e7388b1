// A Verilated module with its clock. In each cycle: drive the inputs, call settle() to get the outputs of this cycle,
// then edge().
#pragma once

#include <memory>
#include <string>

#include <verilated.h>
#if VM_COVERAGE
#include <verilated_cov.h>
#endif

namespace netfold::rtl {

// The reset begins with an edge: registers that see none hold what they began with until the clock's next edge.
template <class Model>
void begin_reset(Model& model) {
  model.rst_ni = 1;
  model.eval();
  model.rst_ni = 0;
}

template <class Model>
class Clocked {
 public:
  Clocked() : context_(std::make_unique<VerilatedContext>()), model_(std::make_unique<Model>(context_.get())) {
    begin_reset(*model_);
    for (int i = 0; i < 4; ++i) cycle();
    model_->rst_ni = 1;
  }
  ~Clocked() {
    if (!model_) return;
    model_->final();
#if VM_COVERAGE
    static int files = 0;  // one per module, in the current folder: `netfold rtl coverage` sums them
    context_->coveragep()->write(("coverage-" + std::to_string(files++) + ".dat").c_str());
#endif
  }
  Clocked(Clocked&&) = default;
  Clocked& operator=(Clocked&&) = default;

  Model* operator->() {
    return model_.get();
  }

  void settle() {
    model_->clk_i = 0;
    model_->eval();
  }
  void edge() {
    model_->clk_i = 1;
    model_->eval();
    ++cycles_;
  }
  void cycle() {
    settle();
    edge();
  }
  std::uint64_t cycles() const {
    return cycles_;
  }
  VerilatedContext& context() {
    return *context_;
  }

 private:
  std::unique_ptr<VerilatedContext> context_;
  std::unique_ptr<Model> model_;
  std::uint64_t cycles_ = 0;
};

}  // namespace netfold::rtl
