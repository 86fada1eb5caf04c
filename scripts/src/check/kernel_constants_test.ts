/**
 * Constants that carry a name of the kernel or of the C library have the value that Debian's headers say, and stand in one place.
 *
 * A constant is theirs if a header defines its name, or if it begins as one that does (`IFLA_`): then a header must have it.
 */
import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Processor } from "../build/runtime_patch.ts";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";

/** A number under a name in capitals. */
interface Constant {
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
    elf fib_rules fs icmpv6 if if_addr if_arp if_bridge if_ether if_link if_packet if_tun inet_diag ip landlock limits lwtunnel magic memfd mount neighbour
    net_namespace netlink netfilter netfilter_ipv4 netfilter/nf_conntrack_common netfilter/nf_nat netfilter/nf_tables
    netfilter/nf_tables_compat netfilter/nfnetlink netfilter/nfnetlink_conntrack netfilter/nfnetlink_log pkt_cls pkt_sched prctl rtnetlink sched seccomp
    sock_diag stat tc_act/tc_mirred timerfd veth wait`).map((name) => `linux/${name}`),
};

/** Where Debian's linux-libc-dev-arm64-cross and linux-libc-dev-amd64-cross have the headers of the other processor. */
const CROSS_HEADERS: Readonly<Record<Processor, string>> = {
  x64: "/usr/x86_64-linux-gnu/include",
  arm64: "/usr/aarch64-linux-gnu/include",
};

/** Names that the headers spell otherwise. */
const SPELLED: Readonly<Record<string, string>> = {
  NF_CT_STATE_ESTABLISHED: "NF_CT_STATE_BIT(IP_CT_ESTABLISHED)",
  NF_CT_STATE_RELATED: "NF_CT_STATE_BIT(IP_CT_RELATED)",
  NF_CT_STATE_NEW: "NF_CT_STATE_BIT(IP_CT_NEW)",
  // They say ~0xc000, for a field of 16 bits.
  NLA_TYPE_MASK: "(unsigned short)NLA_TYPE_MASK",
};

/** Names that no header has, or another thing of that name. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  CTA_FILTER_F_CTA_IP_SRC: "in net/netfilter/nf_conntrack_netlink.c alone, though it is told to user space",
  CTA_FILTER_F_CTA_IP_DST: "the same",
  CTA_FILTER_F_CTA_PROTO_NUM: "the same",
  CTA_FILTER_F_CTA_PROTO_DST_PORT: "the same",
  NFTA_DEVICE_PREFIX: "in Linux 6.16 and later: Debian 12's headers are older",
  FRA_DSCP: "in Linux 6.13 and later: Debian 12's headers are older",
  FRA_FLOWLABEL: "the same",
  LITTLE_ENDIAN: "D-Bus's",
  LOCK_TIMEOUT_MS: "ours",
  PIPE_SIZE: "ours: what a pipe holds unless told otherwise",
};

/** Why this machine cannot tell the values for a processor; the empty text if it can. */
function obstacle(processor: Processor): string {
  if (!Bun.which("gcc")) return "gcc";
  const headers = processor === process.arch ? "/usr/include" : CROSS_HEADERS[processor];
  return existsSync(join(headers, "linux/rtnetlink.h")) ? "" : `${headers}/linux/rtnetlink.h`;
}

/** The constants of a source file, wherever they stand in it. */
function constantsIn(path: string, source: string): Constant[] {
  return Array.from(source.matchAll(/^[^"'`/*\n]*\bconst ([A-Z][^;]*?);/gm), ([, list]) => list!)
    .flatMap((list) => list.split(/,\s+(?=[A-Z]\w* = )/))
    .map((each) => /^([A-Z][A-Z\d]*(?:_\w+)?)(?:: number)? = ([\s\S]+)$/.exec(each))
    .flatMap((match) => match ? [{ name: match[1]!, path, expression: match[2]! }] : [])
    .filter(({ expression }) => /^[\w\s"'.()?:=|<>+*-]+$/.test(expression) && /\d/.test(expression));
}

/** The lines of the table of error numbers, as constants. */
function errorNumbersIn(path: string, source: string): Constant[] {
  return Array.from(
    source.matchAll(/^(\d+) (E\w+) [A-Z]/gm),
    ([, value, name]) => ({ name: name!, path, expression: value! }),
  );
}

/** The values of constants for a processor. One may use others of its file and those that are defined once; text has none. */
function valuesOf(constants: readonly Constant[], processor: Processor): (number | undefined)[] {
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

/** The values of names in the headers of a processor. @throws {Error} where the compiler fails */
function headerValues(names: readonly string[], processor: Processor): ReadonlyMap<string, number> {
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
function kernelNames(names: Iterable<string>, known: { has(name: string): boolean }): ReadonlySet<string> {
  const all = [...names].filter((name) => !(name in EXCEPTIONS));
  const prefix = (name: string) => /^[A-Z\d]+_/.exec(name)?.[0];
  const prefixes = new Set(all.filter((name) => known.has(name)).map(prefix));
  return new Set(all.filter((name) => known.has(name) || (prefixes.has(prefix(name)) && prefix(name))));
}

/** Problems of constants, as `file: text`. @param headers from {@link headerValues} of this processor */
function valueProblems(
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
function unknownNames(
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
function definedTwice(constants: readonly Constant[], headers: ReadonlyMap<string, number>): string[] {
  const kernel = kernelNames(constants.map(({ name }) => name), headers);
  return Object.entries(Object.groupBy(constants, ({ name }) => name))
    .filter(([name, all]) => kernel.has(name) && all!.length > 1)
    .map(([name, all]) => `${name} is defined in ${all!.map(({ path }) => path).join(" and ")}`);
}

/** Exceptions and spellings that no constant needs any more. */
function needlessExceptions(constants: readonly Constant[]): string[] {
  const names = new Set(constants.map(({ name }) => name));
  return [...Object.keys(EXCEPTIONS), ...Object.keys(SPELLED)].filter((name) => !names.has(name));
}

const ERROR_TABLE = "ffi/sys/errno.ts";
/** Files that have nothing but constants of the kernel. */
const UAPI = /(^|\/)uapi\.ts$/;

const read = (path: string) => readFileSync(join(REPOSITORY_ROOT, path), "utf8");
const CONSTANTS = listSources().flatMap((path) => constantsIn(path, read(path)));
const ERRORS = errorNumbersIn(ERROR_TABLE, read(ERROR_TABLE));
const NAMES = [...new Set([...CONSTANTS, ...ERRORS].map(({ name }) => name))];

/** Compiling takes seconds. */
const told = new Map<Processor, ReadonlyMap<string, number>>();

function valuesFor(processor: Processor): ReadonlyMap<string, number> {
  const values = told.get(processor) ?? headerValues(NAMES, processor);
  told.set(processor, values);
  return values;
}

function headersTest(processor: Processor, name: string, body: (headers: ReadonlyMap<string, number>) => void): void {
  const missing = obstacle(processor);
  if (missing) test.skip(`${name} # needs ${missing}`, () => {});
  else test(name, () => body(valuesFor(processor)));
}

for (const processor of ["x64", "arm64"] as const) {
  headersTest(processor, `constants have the value that the headers say for ${processor}`, (headers) => {
    expect(valueProblems([...CONSTANTS, ...ERRORS], processor, headers)).toEqual([]);
    // Constants that differ between processors are in the headers of both, so that none is passed over.
    const others = valuesOf(CONSTANTS, processor === "x64" ? "arm64" : "x64");
    const differing = valuesOf(CONSTANTS, processor)
      .flatMap((value, index) => value === others[index] ? [] : [CONSTANTS[index]!.name]);
    expect(differing).toContain("O_NOFOLLOW");
    expect(differing.filter((name) => !headers.has(name))).toEqual([]);
  });
}

headersTest(process.arch as Processor, "no constant has a name that only looks like the kernel's", (headers) => {
  expect(unknownNames([...CONSTANTS, ...ERRORS], headers, UAPI)).toEqual([]);
});

headersTest(process.arch as Processor, "no constant of the kernel is defined twice", (headers) => {
  expect(definedTwice(CONSTANTS, headers)).toEqual([]);
});

test("no exception outlives its constant", () => {
  expect(needlessExceptions(CONSTANTS)).toEqual([]);
});

const SOURCE = [
  "/** Text about const O_NONE = 1; */",
  "export const O_CREAT = 0o100;",
  "const O_LATE = arm ? 1 << 3 : 0x10, O_BOTH = O_CREAT | 0x1;",
  '  const SYS_read: number = process.arch === "arm64" ? 63 : 0;',
  "const OP: Op = { type: 1 };",
  'const TEXT = "const O_TEXT = 1;";',
].join("\n");
const found = constantsIn("ffi/x/uapi.ts", SOURCE);

test("constants are found wherever they stand, with their values for each processor", () => {
  const values = (processor: Processor) =>
    Object.fromEntries(valuesOf(found, processor).map((value, index) => [found[index]!.name, value]));
  expect(values("x64")).toMatchObject({ O_CREAT: 64, O_LATE: 16, O_BOTH: 65, SYS_read: 0 });
  expect(values("arm64")).toMatchObject({ O_CREAT: 64, O_LATE: 8, O_BOTH: 65, SYS_read: 63 });
  expect(found.map(({ name }) => name)).not.toContain("O_NONE");
  expect(found.map(({ name }) => name)).not.toContain("O_TEXT");
  expect(errorNumbersIn("e.ts", "a\n2 ENOENT No such file\n")).toEqual([
    { name: "ENOENT", path: "e.ts", expression: "2" },
  ]);
});

test("a wrong value, an unknown name and a second definition are told", () => {
  const headers = new Map([["O_CREAT", 64], ["O_LATE", 8], ["SYS_read", 0]]);
  expect(valueProblems(found, "x64", headers)).toEqual(["ffi/x/uapi.ts: O_LATE = arm ? 1 << 3 : 0x10: it is 8 on x64"]);
  expect(valueProblems(found, "arm64", headers)).toEqual([
    'ffi/x/uapi.ts: SYS_read = process.arch === "arm64" ? 63 : 0: it is 0 on arm64',
  ]);
  const constant = (name: string, path: string): Constant => ({ name, path, expression: "1" });
  const more = [
    constant("O_LATE", "a.ts"),
    constant("O_NO", "b.ts"),
    constant("MOST", "b.ts"),
    constant("MOST", "c.ts"),
  ];
  expect(unknownNames(more, headers, UAPI)).toEqual(["b.ts: O_NO is in no header of the kernel or the C library"]);
  expect(unknownNames([constant("MOST", "b/uapi.ts")], headers, UAPI)).toHaveLength(1);
  expect(definedTwice([...found, ...more], headers)).toEqual(["O_LATE is defined in ffi/x/uapi.ts and a.ts"]);
});
