import { sysctlWord } from "../../ffi/sys/sysctl.ts";

/** What an effect changes. `requests` to the kernel that have no kind of their own are `netlink`. */
export type EffectKind =
  | ("link" | "address" | "route" | "rule" | "qdisc" | "netlink" | "conntrack")
  | ("nft" | "sysctl" | "file" | "dbus" | "program");

export type FileOperation = "create" | "replace" | "write" | "remove";

export interface Effect {
  readonly kind: EffectKind;
  readonly action: "add" | "remove" | "change" | "run";
  /** `remove link "eth0" in /run/netns/web, with its addresses, routes and peer` */
  readonly sentence: string;
  /** The name of a link, a path, a kernel parameter, or `inet cni masquerade4` for a set. */
  readonly target: string;
  /** The network namespace: `host`, or its path. Absent for files, programs and parameters of the whole machine. */
  readonly netns?: string;
  /** `bridge DEL`; absent for what the runtime does. */
  readonly plugin?: string;
  /** Of kind `nft`: what the table holds. Of kind `file`: what is made, written or removed. */
  readonly object?: "table" | "chain" | "set" | "rule" | "element" | "file" | "directory";
  /** Present for files and directories. Absent for changes of modes, symbolic links, mounts and new names. */
  readonly operation?: FileOperation;
  /** Of an element that publishes a port: `8080/tcp`, or with an address of the host `192.0.2.7 8080/tcp`. */
  readonly publishedPort?: string;
  /** Of a new veth pair: the other end's name. */
  readonly peer?: string;
  /** The requests to the kernel with names and values, or what a program would get. */
  readonly details?: readonly string[];
}

export interface EffectList {
  readonly effects: readonly Effect[];
  /** An effect that is listed already is not added, except rules: what was not carried out is often found again. */
  add(effect: Omit<Effect, "plugin">): void;
  /** Takes back the effects on a file that a later one contains or cancels. */
  withdrawFile(path: string): void;
}

/**
 * @param currentPlugin `bridge DEL`
 * @param isUndoing whether what failed is being undone: that is no effect
 */
export function newEffectList(currentPlugin: () => string | undefined, isUndoing: () => boolean): EffectList {
  // Maps keep the order. A GC of a large host has ten thousands of effects.
  const effects = new Map<string, Effect>();
  const fileKeys = new Map<string, string[]>();
  let rules = 0;
  return {
    get effects() {
      return [...effects.values()];
    },
    add(effect) {
      const { kind, netns = "", sentence, target } = effect;
      const key = kind === "nft" ? `${rules++}` : `${netns} ${sentence}`;
      if (isUndoing() || effects.has(key)) return;
      const plugin = currentPlugin();
      effects.set(key, { ...effect, ...plugin !== undefined && { plugin } });
      if (kind === "file") fileKeys.set(target, [...fileKeys.get(target) ?? [], key]);
    },
    withdrawFile(path) {
      if (isUndoing()) return;
      for (const key of fileKeys.get(path) ?? []) effects.delete(key);
      fileKeys.delete(path);
    },
  };
}

/** @param path below /proc/sys @param netns `host`, or its path; absent for parameters of the whole machine */
export function sysctlEffect(path: string, value: string, netns: string | undefined): Omit<Effect, "plugin"> {
  const sentence = `set ${sysctlWord(path)} = ${value}${netns === undefined ? "" : ` in ${netns}`}`;
  return { kind: "sysctl", action: "change", sentence, target: path, ...netns !== undefined && { netns } };
}

/** A file that says nothing: a command that changes nothing else may create it, too. */
export function isLockFile({ kind, target }: Effect): boolean {
  return kind === "file" && /[/.]lock$/.test(target);
}
