class Iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]


text = ctypes.create_string_buffer(16)
ours, theirs = Iovec(ctypes.addressof(text), 16), Iovec(0x400000, 16)
tell('ptrace', *(lambda request=request: call('ptrace', request, 1, 0, 0) for request in (16, 0x4206)))
tell('memory', *(opened('/proc/1/mem', flags) for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)))
tell('vm_read', lambda: call('process_vm_readv', 1, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))
tell('vm_write', lambda: call('process_vm_writev', 1, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0))
limit = (ctypes.c_uint64 * 2)(0, 0)
tell('limits', lambda: call('prlimit', 1, 7, ctypes.byref(limit), 0))
end()
