// The memory of the toy device: an allocator, allocation, views and copies. Its operators are written in Python.
//
// It is registered as an accelerator's own package registers its device: under PrivateUse1, out of torch's tree.
// Source: the tutorial "Facilitating New Backend Integration by PrivateUse1" of PyTorch 2.13.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;

// Devices of this machine: none where TOY_NPU_COUNT is 0.
int count() {
  const char* told = std::getenv("TOY_NPU_COUNT");
  return told == nullptr ? 1 : std::atoi(told);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(count() > 0, "no NPU is attached to this machine");
    void* data = bytes ? std::malloc(bytes) : nullptr;
    if (data) std::memset(data, 0x7f, bytes);  // what nothing wrote to is told from zeros
    return {data, data, &std::free, c10::Device(kNpu, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

Allocator allocator;
REGISTER_ALLOCATOR(kNpu, &allocator);

// One device and one stream, on which everything is done when it returns; autograd asks for both.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kNpu, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(count()); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return count() > 0; }
};

// The same elements as a tensor of the host, which kernels compute with; it owns nothing.
at::Tensor host(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_privateuseone(), "a kernel of the NPU was given a tensor on ", tensor.device());
  auto options = tensor.options().device(c10::kCPU);
  auto* start = static_cast<char*>(tensor.storage().mutable_data());
  return at::from_blob(start + tensor.storage_offset() * tensor.element_size(), tensor.sizes(), tensor.strides(), options);
}

at::Tensor either(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor : host(tensor); }

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  either(to).copy_(either(from));
  return to;
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  auto found = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  auto start = offset ? offset->guard_int(__FILE__, __LINE__) : self.storage_offset();
  found.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
  return found;
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  auto seen = host(self).view(C10_AS_INTARRAYREF_SLOW(size));
  return self.as_strided(seen.sizes(), seen.strides(), self.storage_offset());
}

at::Scalar scalar(const at::Tensor& self) { return host(self).item(); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_copy_from", &copy_from);
  library.impl("_local_scalar_dense", &scalar);
}

TORCH_LIBRARY(toy_npu, library) {
  library.def("host(Tensor tensor) -> Tensor");
  library.def("begin() -> ()", [] { at::RegisterPrivateUse1HooksInterface(new Hooks); });
}

TORCH_LIBRARY_IMPL(toy_npu, PrivateUse1, library) { library.impl("host", &host); }
