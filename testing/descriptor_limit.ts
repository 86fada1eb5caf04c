import { dlopen } from "bun:ffi";

const RLIMIT_NOFILE = 7;

/** Until it is disposed of, this process can open nothing (EMFILE). */
export function forbidDescriptors(): Disposable {
  const { symbols: { getrlimit, setrlimit }, close } = dlopen("libc.so.6", {
    getrlimit: { args: ["int", "ptr"], returns: "int" },
    setrlimit: { args: ["int", "ptr"], returns: "int" },
  });
  // struct rlimit { soft, hard }
  const before = new BigUint64Array(2);
  getrlimit(RLIMIT_NOFILE, before);
  setrlimit(RLIMIT_NOFILE, BigUint64Array.of(0n, before[1]!));
  return {
    [Symbol.dispose]() {
      setrlimit(RLIMIT_NOFILE, before);
      close();
    },
  };
}
