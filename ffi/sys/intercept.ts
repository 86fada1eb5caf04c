import { sys, type SystemCall } from "./libc.ts";

type Call = (...args: readonly unknown[]) => number;

/** @param call makes the system call, with these arguments or others */
export type SystemCallInterceptor = (name: SystemCall, args: readonly unknown[], call: Call) => number;

/** Has all callers go through `intercept` until the scope ends. Without it, system calls cost what they did. */
export function interceptSystemCalls(names: readonly SystemCall[], intercept: SystemCallInterceptor): Disposable {
  const originals = names.map((name) => [name, sys[name] as Call] as const);
  const put = (name: SystemCall, value: Call) => Object.defineProperty(sys, name, { value, configurable: true });
  for (const [name, call] of originals) put(name, (...args) => intercept(name, args, call));
  return {
    [Symbol.dispose]() {
      for (const [name, call] of originals) put(name, call);
    },
  };
}
