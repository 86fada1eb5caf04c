import { dlopen } from "bun:ffi";
import { closeSync, openSync } from "node:fs";

const RLIMIT_NOFILE = 7;

/** Until it is disposed of, this process can open only so many more files, and then nothing (EMFILE). */
export function forbidDescriptors(allowed = 0): Disposable {
  const spare = Array.from({ length: allowed }, () => openSync("/dev/null", "r"));
  spare.forEach(closeSync);
  const { symbols: { getrlimit, setrlimit }, close } = dlopen("libc.so.6", {
    getrlimit: { args: ["int", "ptr"], returns: "int" },
    setrlimit: { args: ["int", "ptr"], returns: "int" },
  });
  // struct rlimit { soft, hard }
  const before = new BigUint64Array(2);
  getrlimit(RLIMIT_NOFILE, before);
  setrlimit(RLIMIT_NOFILE, BigUint64Array.of(BigInt(Math.max(-1, ...spare) + 1), before[1]!));
  return {
    [Symbol.dispose]() {
      setrlimit(RLIMIT_NOFILE, before);
      close();
    },
  };
}
