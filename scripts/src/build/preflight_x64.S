# Runs before the JavaScript runtime: looks for what that dies without, and ends the process with one sentence then.
# A plugin's caller gets it as the error object of the specification. See preflight.ts, which holds this as bytes.

.intel_syntax noprefix
.text

.set SYS_writev, 20
.set SYS_access, 21
.set SYS_getrlimit, 97
.set SYS_exit_group, 231
.set ENOENT, 2
.set RLIMIT_STACK, 3
.set RLIMIT_AS, 9
.set MIN_STACK, 256 * 1024
# In halves of a GiB: it dies below 2.3 GiB.
.set MIN_ADDRESS_SPACE, 5
.set HALF_GIB_BITS, 29

preflight:
    endbr64
    # What the loader gives to the program: rdx is to be handed on, and rsp points to argc.
    mov r12, rdx

    lea rdi, [rip + proc_exe]
    xor esi, esi
    mov eax, SYS_access
    syscall
    lea r13, [rip + no_proc]
    mov r14d, offset no_proc_length
    cmp eax, -ENOENT
    je fail

    # struct rlimit, below the stack pointer: nothing else is called.
    lea rsi, [rsp - 128]
    mov edi, RLIMIT_STACK
    mov eax, SYS_getrlimit
    syscall
    lea r13, [rip + little_stack]
    mov r14d, offset little_stack_length
    # A filter of system calls may refuse to tell.
    test eax, eax
    jnz go_on
    cmp qword ptr [rsp - 128], MIN_STACK
    jb fail

    mov edi, RLIMIT_AS
    mov eax, SYS_getrlimit
    syscall
    lea r13, [rip + little_address_space]
    mov r14d, offset little_address_space_length
    test eax, eax
    jnz go_on
    mov rax, [rsp - 128]
    shr rax, HALF_GIB_BITS
    cmp rax, MIN_ADDRESS_SPACE
    jb fail

go_on:
    mov rdx, r12
    # To the program's own entry point; the build fills in the distance.
    .byte 0xe9
    .long 0

fail:
    # Behind argc and argv is the environment.
    mov rax, [rsp]
    lea rbx, [rsp + rax * 8 + 16]
next_variable:
    mov rdi, [rbx]
    test rdi, rdi
    jz to_person
    add rbx, 8
    movabs rax, 0x4d4d4f435f494e43 # "CNI_COMM"
    cmp [rdi], rax
    jne next_variable
    cmp dword ptr [rdi + 8], 0x3d444e41 # "AND="
    jne next_variable
    cmp byte ptr [rdi + 12], 0
    je next_variable

    mov edi, 1
    lea rax, [rip + json_head]
    mov ecx, offset json_head_length
    lea rdx, [rip + json_tail]
    mov r8d, offset json_tail_length
    jmp print
to_person:
    mov edi, 2
    lea rax, [rip + text_head]
    mov ecx, offset text_head_length
    lea rdx, [rip + text_tail]
    mov r8d, 1
print:
    # struct iovec[3]
    lea rsi, [rsp - 128]
    mov [rsi], rax
    mov [rsi + 8], rcx
    mov [rsi + 16], r13
    mov [rsi + 24], r14
    mov [rsi + 32], rdx
    mov [rsi + 40], r8
    mov edx, 3
    mov eax, SYS_writev
    syscall
    mov edi, 1
    mov eax, SYS_exit_group
    syscall

proc_exe:
    .asciz "/proc/self/exe"
no_proc:
    .ascii "Cannot start: /proc is not mounted"
    .set no_proc_length, . - no_proc
little_stack:
    .ascii "Cannot start: the stack is limited too much: raise it to 256 KiB or more (ulimit -s, LimitSTACK)"
    .set little_stack_length, . - little_stack
little_address_space:
    .ascii "Cannot start: the address space is limited too much: raise it to 2.5 GiB or more (ulimit -v, LimitAS)"
    .set little_address_space_length, . - little_address_space
json_head:
    .ascii "{\n    \"cniVersion\": \"1.1.0\",\n    \"code\": 999,\n    \"msg\": \""
    .set json_head_length, . - json_head
json_tail:
    .ascii "\"\n}\n"
    .set json_tail_length, . - json_tail
text_head:
    .ascii "cni: "
    .set text_head_length, . - text_head
text_tail:
    .ascii "\n"
