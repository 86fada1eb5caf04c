// Runs before the JavaScript runtime: looks for what that dies without, and ends the process with one sentence then.
// A plugin's caller gets it as the error object of the specification. See preflight.ts, which holds this as bytes.

.text

.set SYS_faccessat, 48
.set SYS_writev, 66
.set SYS_exit_group, 94
.set SYS_getrlimit, 163
.set AT_FDCWD, -100
.set ENOENT, 2
.set RLIMIT_STACK, 3
.set RLIMIT_AS, 9
.set MIN_STACK_PAGES, 64 // of 4 KiB
// In halves of a GiB. It dies at some limits below 1.8 GiB; one figure is told for both processors.
.set MIN_ADDRESS_SPACE, 5
.set HALF_GIB_BITS, 29

preflight:
    // What the loader gives to the program: x0 is to be handed on, and sp points to argc.
    mov x19, x0

    mov x0, AT_FDCWD
    adr x1, proc_exe
    mov x2, 0
    mov x8, SYS_faccessat
    svc 0
    adr x20, no_proc
    mov x21, no_proc_length
    cmn x0, ENOENT
    b.eq fail

    // struct rlimit, below the stack pointer: nothing else is called.
    sub x22, sp, 128
    mov x0, RLIMIT_STACK
    mov x1, x22
    mov x8, SYS_getrlimit
    svc 0
    adr x20, little_stack
    mov x21, little_stack_length
    // A filter of system calls may refuse to tell.
    cbnz x0, go_on
    ldr x9, [x22]
    lsr x9, x9, 12
    cmp x9, MIN_STACK_PAGES
    b.lo fail

    mov x0, RLIMIT_AS
    mov x1, x22
    mov x8, SYS_getrlimit
    svc 0
    adr x20, little_address_space
    mov x21, little_address_space_length
    cbnz x0, go_on
    ldr x9, [x22]
    lsr x9, x9, HALF_GIB_BITS
    cmp x9, MIN_ADDRESS_SPACE
    b.lo fail

go_on:
    mov x0, x19
    // To the program's own entry point; the build fills in the distance.
    .inst 0x14000000

fail:
    // Behind argc and argv is the environment.
    ldr x9, [sp]
    add x10, sp, x9, lsl 3
    add x10, x10, 16
    ldr x11, cni_comm
    ldr w12, and_equals
next_variable:
    ldr x9, [x10], 8
    cbz x9, to_person
    ldr x13, [x9]
    cmp x13, x11
    b.ne next_variable
    ldr w13, [x9, 8]
    cmp w13, w12
    b.ne next_variable
    ldrb w13, [x9, 12]
    cbz w13, next_variable

    mov x0, 1
    adr x9, json_head
    mov x10, json_head_length
    adr x11, json_tail
    mov x12, json_tail_length
    b print
to_person:
    mov x0, 2
    adr x9, text_head
    mov x10, text_head_length
    adr x11, text_tail
    mov x12, 1
print:
    // struct iovec[3]
    sub x1, sp, 128
    stp x9, x10, [x1]
    stp x20, x21, [x1, 16]
    stp x11, x12, [x1, 32]
    mov x2, 3
    mov x8, SYS_writev
    svc 0
    mov x0, 1
    mov x8, SYS_exit_group
    svc 0

cni_comm:
    .ascii "CNI_COMM"
and_equals:
    .ascii "AND="
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
