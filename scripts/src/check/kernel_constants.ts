/**
 * Compares constants of the sources that carry a name of the kernel or of the C library with what their headers say.
 *
 * A constant is theirs if a header defines its name, or if it begins as one that does (`IFLA_`): then a header must have it.
 *
 * @module
 */

import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Processor } from "../build/runtime_patch.ts";

/** A number under a name in capitals. */
export interface Constant {
  readonly name: string;
  readonly path: string;
  /** As text of the language, such as `1 << 3` or `arm ? 178 : 186`. */
  readonly expression: string;
}

const words = (text: string): string[] => text.trim().split(/\s+/);

/** Headers of the C library, the kernel's of the processor, and the kernel's others: they do not go together in one program. */
const HEADERS = {
  library: words(`
    dirent fcntl net/if netinet/in netinet/tcp poll signal spawn sys/file sys/mman sys/mount sys/socket sys/stat sys/wait time unistd
    linux/netfilter_bridge`),
  processor: words("asm/errno asm/fcntl asm/poll asm/signal asm/socket asm/unistd linux/time"),
  kernel: words(`
    fib_rules fs if if_addr if_arp if_bridge if_ether if_link if_packet if_tun inet_diag ip limits magic memfd mount neighbour
    net_namespace netlink netfilter netfilter_ipv4 netfilter/nf_conntrack_common netfilter/nf_nat netfilter/nf_tables
    netfilter/nf_tables_compat netfilter/nfnetlink netfilter/nfnetlink_conntrack pkt_cls pkt_sched prctl rtnetlink sched seccomp
    sock_diag stat tc_act/tc_mirred veth wait`).map((name) => `linux/${name}`),
};

/** Where Debian's linux-libc-dev-arm64-cross and linux-libc-dev-amd64-cross have the headers of the other processor. */
const CROSS_HEADERS: Readonly<Record<Processor, string>> = {
  x64: "/usr/x86_64-linux-gnu/include",
  arm64: "/usr/aarch64-linux-gnu/include",
};

/** What stands for a name in the headers, where it is not the name. */
const SPELLED: Readonly<Record<string, string>> = {
  NF_CT_STATE_ESTABLISHED: "NF_CT_STATE_BIT(IP_CT_ESTABLISHED)",
  NF_CT_STATE_RELATED: "NF_CT_STATE_BIT(IP_CT_RELATED)",
  // They say ~0xc000, for a field of 16 bits.
  NLA_TYPE_MASK: "(unsigned short)NLA_TYPE_MASK",
};

/** Names that no header has, or another thing of that name. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  CTA_FILTER_F_CTA_IP_SRC: "in net/netfilter/nf_conntrack_netlink.c alone, though it is told to user space",
  CTA_FILTER_F_CTA_IP_DST: "the same",
  CTA_FILTER_F_CTA_PROTO_NUM: "the same",
  CTA_FILTER_F_CTA_PROTO_DST_PORT: "the same",
  LITTLE_ENDIAN: "D-Bus's",
  LOCK_TIMEOUT_MS: "ours",
  PIPE_SIZE: "ours: what a pipe holds unless told otherwise",
};

/** Why this machine cannot tell the values for a processor; the empty text if it can. */
export function obstacle(processor: Processor): string {
  if (!Bun.which("gcc")) return "gcc";
  const headers = processor === process.arch ? "/usr/include" : CROSS_HEADERS[processor];
  return existsSync(join(headers, "linux/rtnetlink.h")) ? "" : `${headers}/linux/rtnetlink.h`;
}

/** The constants of a source file, wherever they stand in it. */
export function constantsIn(path: string, source: string): Constant[] {
  return Array.from(source.matchAll(/^[^"'`/*\n]*\bconst ([A-Z][^;]*?);/gm), ([, list]) => list!)
    .flatMap((list) => list.split(/,\s+(?=[A-Z]\w* = )/))
    .map((each) => /^([A-Z][A-Z\d]*(?:_\w+)?)(?:: number)? = ([\s\S]+)$/.exec(each))
    .flatMap((match) => match ? [{ name: match[1]!, path, expression: match[2]! }] : [])
    .filter(({ expression }) => /^[\w\s"'.()?:=|<>+*-]+$/.test(expression) && /\d/.test(expression));
}

/** The lines of the table of error numbers, as constants. */
export function errorNumbersIn(path: string, source: string): Constant[] {
  return Array.from(
    source.matchAll(/^(\d+) (E\w+) [A-Z]/gm),
    ([, value, name]) => ({ name: name!, path, expression: value! }),
  );
}

/** The values of constants for a processor. One may use others of its file and those that are defined once; text has none. */
export function valuesOf(constants: readonly Constant[], processor: Processor): (number | undefined)[] {
  const scope: Record<string, unknown> = { process: { arch: processor }, arm: processor === "arm64" };
  const evaluate = ({ expression }: Constant): number | undefined => {
    try {
      const value = new Function(...Object.keys(scope), `return ${expression};`)(...Object.values(scope));
      return ["number", "bigint"].includes(typeof value) ? Number(value) : undefined;
    } catch {
      // It uses something else than constants.
      return undefined;
    }
  };
  return constants.map((constant) => {
    const value = evaluate(constant);
    if (value !== undefined) scope[constant.name] = value;
    return value;
  });
}

/** What the headers of a processor say of those names that they have. @throws {Error} where the compiler fails */
export function headerValues(names: readonly string[], processor: Processor): ReadonlyMap<string, number> {
  const own = processor === process.arch;
  const flags = own ? [] : ["-isystem", CROSS_HEADERS[processor]];
  return new Map([
    ...own ? declared(names, HEADERS.library) : [],
    ...declared(names, HEADERS.processor, ...flags),
    ...declared(names, HEADERS.kernel, ...flags),
  ]);
}

function declared(names: readonly string[], headers: readonly string[], ...flags: string[]): Map<string, number> {
  const head = ["#define _GNU_SOURCE", ...headers.map((name) => `#include <${name}.h>`), "int main() {"];
  const lineOf = (name: string) =>
    `__builtin_printf("${name} %lld\\n", (long long)(${SPELLED[name] ?? name.replace(/^SYS_/, "__NR_")}));`;
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  try {
    const source = join(directory, "constants.c");
    const program = join(directory, "constants");
    const compile = (chosen: readonly string[]): string => {
      writeFileSync(source, [...head, ...chosen.map(lineOf), "}", ""].join("\n"));
      const command = ["gcc", "-w", "-fmax-errors=0", ...flags, "-o", program, source];
      return Bun.spawnSync(command, { env: { ...process.env, LC_ALL: "C" } }).stderr.toString();
    };
    // The first time, every line with an error has a name that no header has.
    const errors = compile(names).matchAll(/constants\.c:(\d+):\d+: error/g);
    const unknown = new Set(Array.from(errors, ([, line]) => Number(line)));
    const problem = compile(names.filter((_, index) => !unknown.has(head.length + 1 + index)));
    if (problem) throw new Error(`The headers cannot be compiled:\n${problem}`);
    const lines = Bun.spawnSync([program]).stdout.toString().trim().split("\n");
    return new Map(lines.map((line) => line.split(" ")).map(([name, value]) => [name!, Number(value)]));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** The names among these that are the kernel's or the C library's. @param known the names that headers have */
export function kernelNames(names: Iterable<string>, known: { has(name: string): boolean }): ReadonlySet<string> {
  const all = [...names].filter((name) => !(name in EXCEPTIONS));
  const prefix = (name: string) => /^[A-Z\d]+_/.exec(name)?.[0];
  const prefixes = new Set(all.filter((name) => known.has(name)).map(prefix));
  return new Set(all.filter((name) => known.has(name) || (prefixes.has(prefix(name)) && prefix(name))));
}

/** What is wrong with constants, as `file: text`. @param headers what {@link headerValues} says of this processor */
export function valueProblems(
  constants: readonly Constant[],
  processor: Processor,
  headers: ReadonlyMap<string, number>,
): string[] {
  const values = valuesOf(constants, processor);
  return constants.flatMap(({ name, path, expression }, index) => {
    const expected = headers.get(name);
    if (name in EXCEPTIONS || expected === undefined || values[index] === expected) return [];
    return [`${path}: ${name} = ${expression}: it is ${expected} on ${processor}`];
  });
}

/** Names of the kernel that no header has. @param own files all of whose constants are the kernel's */
export function unknownNames(
  constants: readonly Constant[],
  headers: ReadonlyMap<string, number>,
  own: RegExp,
): string[] {
  const kernel = kernelNames(constants.map(({ name }) => name), headers);
  return constants
    .filter(({ name, path }) => !headers.has(name) && !(name in EXCEPTIONS) && (kernel.has(name) || own.test(path)))
    .map(({ name, path }) => `${path}: ${name} is in no header of the kernel or the C library`);
}

/** Names of the kernel that are defined in more than one place. */
export function definedTwice(constants: readonly Constant[], headers: ReadonlyMap<string, number>): string[] {
  const kernel = kernelNames(constants.map(({ name }) => name), headers);
  return Object.entries(Object.groupBy(constants, ({ name }) => name))
    .filter(([name, all]) => kernel.has(name) && all!.length > 1)
    .map(([name, all]) => `${name} is defined in ${all!.map(({ path }) => path).join(" and ")}`);
}

/** Exceptions and spellings that no constant needs any more. */
export function needlessExceptions(constants: readonly Constant[]): string[] {
  const names = new Set(constants.map(({ name }) => name));
  return [...Object.keys(EXCEPTIONS), ...Object.keys(SPELLED)].filter((name) => !names.has(name));
}
