# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
# Finds what Sluice builds on. Protobuf by module, the rest by its own config: that is what Debian 12 packages support.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(OpenMP COMPONENTS CXX)
if(SLUICE_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()

# Debian's dnnl config file asks for OpenCL's development files and fails without them, so the library is found by hand.
set(SLUICE_HAVE_ONEDNN OFF)
if(SLUICE_ONEDNN)
  find_path(SLUICE_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
  find_library(SLUICE_DNNL_LIBRARY dnnl)
  if(SLUICE_DNNL_INCLUDE AND SLUICE_DNNL_LIBRARY AND OpenMP_CXX_FOUND)
    set(SLUICE_HAVE_ONEDNN ON)
    add_library(sluice_dnnl INTERFACE)
    target_include_directories(sluice_dnnl SYSTEM INTERFACE "${SLUICE_DNNL_INCLUDE}")
    target_link_libraries(sluice_dnnl INTERFACE "${SLUICE_DNNL_LIBRARY}" OpenMP::OpenMP_CXX)
    target_compile_definitions(sluice_dnnl INTERFACE SLUICE_HAVE_ONEDNN=1)
  else()
    message(STATUS "oneDNN or OpenMP not found: the host device uses its plain loops")
  endif()
endif()

# CUDA is optional. nvcc 13 knows C++20; CMake 3.25.1 does not know that, so it is told.
set(SLUICE_HAVE_CUDA OFF)
if(NOT SLUICE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    # cuDNN comes with the toolkit's packages, on its own (CUDNN_ROOT), or in PyPI wheels (SLUICE_CUDA_WHEELS names the
    # folder that holds nvidia/cudnn).
    set(SLUICE_CUDA_WHEELS "" CACHE PATH "Folder with NVIDIA's wheels (site-packages), when cuDNN comes from one")
    find_path(SLUICE_CUDNN_INCLUDE cudnn.h
      HINTS "${SLUICE_CUDA_WHEELS}/nvidia/cudnn/include" ${CUDNN_ROOT}/include $ENV{CUDNN_ROOT}/include
        ${CUDAToolkit_INCLUDE_DIRS})
    find_library(SLUICE_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
      HINTS "${SLUICE_CUDA_WHEELS}/nvidia/cudnn/lib" ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_LIBRARY_DIR}
      PATH_SUFFIXES lib lib64)
    if(SLUICE_CUDNN_INCLUDE AND SLUICE_CUDNN_LIBRARY AND TARGET CUDA::cublasLt)
      set(SLUICE_HAVE_CUDA ON)
      add_library(sluice_cudnn INTERFACE)
      target_include_directories(sluice_cudnn SYSTEM INTERFACE "${SLUICE_CUDNN_INCLUDE}")
      target_link_libraries(sluice_cudnn INTERFACE "${SLUICE_CUDNN_LIBRARY}")
    elseif(SLUICE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "SLUICE_CUDA=ON, but cuDNN 9 or cuBLASLt was not found; install cudnn9 and libcublas-dev of the "
        "CUDA toolkit, or name cuDNN's folder with CUDNN_ROOT or SLUICE_CUDA_WHEELS, or pass SLUICE_CUDA=OFF")
    else()
      message(STATUS "cuDNN or cuBLASLt not found: building without the CUDA device (SLUICE_CUDA=AUTO)")
    endif()
  elseif(SLUICE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SLUICE_CUDA=ON, but no CUDA compiler was found; install the CUDA toolkit or pass SLUICE_CUDA=OFF")
  else()
    message(STATUS "no CUDA compiler found: building without the CUDA device (SLUICE_CUDA=AUTO)")
  endif()
endif()
