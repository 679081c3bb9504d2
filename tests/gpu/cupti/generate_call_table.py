#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of CUDA calls that the watcher looks at, from CUPTI's own headers, so that a call which a new CUDA
adds is watched without a change here.

usage: generate_call_table.py INCLUDE_FOLDER OUTPUT
"""
import pathlib
import re
import sys

STREAM_TYPES = {"CUstream", "cudaStream_t"}
# Puts work into a stream.
ISSUES = re.compile(r"Launch|Memcpy|Memset|EventRecord|StreamWaitEvent|WaitValue|WriteValue|BatchMemOp|AllocAsync|"
                    r"AllocFromPoolAsync|MallocAsync|MallocFromPoolAsync|FreeAsync|AddCallback|Prefetch|Discard|AttachMem|"
                    r"BatchAsync|Signal.*Semaphore|Wait.*Semaphore|GraphicsMap|GraphicsUnmap|GraphUpload|BeginCapture")
# Without a stream among its parameters, and not for the calling thread's own: goes to the legacy default stream.
IMPLICIT = re.compile(r"^(cu|cuda)(Memcpy|Memset)(?!.*Async)")
# Only name work that may be issued later.
NOT_ISSUED = re.compile(r"Graph(Add|Exec|.*NodeSet|.*NodeGet|.*SetParams|.*GetParams)|GetAttribute|Query|Occupancy|PointerGet")
ALLOCATES = re.compile(
    r"^cuda(Malloc|HostAlloc|Free|HostRegister|HostUnregister)|"
    r"^cu(MemAlloc|MemFree|MemHostAlloc|MemHostRegister|MemHostUnregister|MemCreate|MemRelease|MemMap|MemUnmap|"
    r"MemAddressReserve|MemAddressFree|ArrayCreate|Array3DCreate|MipmappedArrayCreate|MemPoolCreate|MemPoolDestroy)")


def read_structs(text):
    """{struct name without _params: [(type, field)]}"""
    structs = {}
    for match in re.finditer(r"typedef struct (\w+)_params_st \{(.*?)\} \w+;", text, re.DOTALL):
        fields = [re.match(r"\s*(.*?)\s*\**(\w+)\s*(\[.*\])?$", line) for line in match.group(2).split(";")]
        structs[match.group(1)] = [(field.group(1), field.group(2)) for field in fields if field]
    return structs


def read_calls(text, prefix):
    return [name for name in re.findall(prefix + r"_(\w+)\s*=\s*\d+", text) if name not in ("INVALID", "SIZE")]


def entry(domain, prefix, name, fields):
    """One line of the table, None for a call that is not watched."""
    per_thread = "_ptsz" in name or "_ptds" in name
    stream = [field for kind, field in fields if kind in STREAM_TYPES]
    config = [field for kind, field in fields if re.search(r"\b(CUlaunchConfig|cudaLaunchConfig_t)\b", kind)]
    how, offset = "kNone", "0"
    if ISSUES.search(name) and not NOT_ISSUED.search(name):
        if stream:
            how, offset = "kStream", f"offsetof({name}_params, {stream[0]})"
        elif config and "LaunchKernelEx" in name:
            how = "kDriverConfig" if domain == "DRIVER" else "kRuntimeConfig"
            offset = f"offsetof({name}_params, {config[0]})"
        elif IMPLICIT.search(name) and not per_thread:
            how = "kImplicit"
    allocates = bool(ALLOCATES.search(name))
    if how == "kNone" and not allocates:
        return None
    return (f'{{CUPTI_CB_DOMAIN_{domain}_API, {prefix}_{name}, "{name}", Issue::{how}, {offset}, '
            f'{str(per_thread).lower()}, {str(allocates).lower()}}},')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, output = map(pathlib.Path, sys.argv[1:])
    lines = []
    for domain, prefix, calls, meta in (
            ("DRIVER", "CUPTI_DRIVER_TRACE_CBID", "cupti_driver_cbid.h", "generated_cuda_meta.h"),
            ("RUNTIME", "CUPTI_RUNTIME_TRACE_CBID", "cupti_runtime_cbid.h", "generated_cuda_runtime_api_meta.h")):
        structs = read_structs((folder / meta).read_text())
        for name in read_calls((folder / calls).read_text(), prefix):
            line = entry(domain, prefix, name, structs.get(name, []))
            if line:
                lines.append(line)
    for must in ('"cuLaunchKernel"', '"cudaLaunchKernel_v7000"', '"cuMemcpyHtoD_v2"', '"cuMemAlloc_v2"', '"cuGraphLaunch"'):
        if not any(must in line for line in lines):
            sys.exit(f"{folder}: no entry for {must}; the headers are not as expected")
    output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
