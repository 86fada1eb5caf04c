/** Programs that may not make machine code. @see prctl(2) PR_SET_MDWE @module */
import { SYS_prctl } from "../ffi/sys/clone3_fallback.ts";
import { EINVAL } from "../ffi/sys/errno.ts";

/** Starts what follows with W^X enforced, as systemd's MemoryDenyWriteExecute does. If refused, it ends with the errno. */
export const WRITE_XOR_EXECUTE = [
  "perl",
  "-e",
  `syscall(${SYS_prctl}, 65, 1, 0, 0, 0) == 0 or exit $! + 0; exec @ARGV`,
];

const isKnown = Bun.which("perl") === null || Bun.spawnSync([...WRITE_XOR_EXECUTE, "true"]).exitCode !== EINVAL;

/** What `testWith()` of binary.ts has to find. */
export const WRITE_XOR_EXECUTE_NEEDS: readonly string[] = isKnown ? ["perl"] : ["Linux 6.3"];
