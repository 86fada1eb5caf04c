/** The parameters of a plugin call: the CNI_* variables (SPEC §Parameters). An empty one counts as missing. @module */
import { CniError, Code } from "./error.ts";
import { excerpt } from "./jsonc.ts";
import { type CniCommand, introducedIn } from "./version.ts";

/** The parameters of a call besides CNI_COMMAND. */
export interface Parameters {
  /** Empty for GC, STATUS and VERSION. */
  readonly containerId: string;
  /** Empty for GC, STATUS and VERSION. */
  readonly ifname: string;
  /** Path of the namespace; always there for ADD and CHECK. */
  readonly netns?: string;
  /** CNI_ARGS as given; {@linkcode parseArgs} reads it. */
  readonly args: string;
  /** Directories with plugins; may be empty, as only delegation needs them. */
  readonly path: readonly string[];
  /** Whether a plugin may work on its own namespace. */
  readonly netnsOverride: boolean;
}

/** The CNI_* variables, read. */
export interface Environment extends Parameters {
  readonly command: CniCommand;
}

/** Whether a command is about one attachment, and so needs its parameters. */
const isAttachmentCommand = (command: string): boolean => ["ADD", "DEL", "CHECK", "RESTORE"].includes(command);

/** Checks that a command has all its parameters. @throws {CniError} code 4 naming every one that is missing or wrong */
export function requireParameters(parameters: Parameters & { readonly command: string }): void {
  const { command, containerId, netns = "", ifname } = parameters;
  if (!isAttachmentCommand(command)) return;
  const missing = (value: string) => value === "" ? "is missing" : undefined;
  const ifnameRule = command === "ADD" ? newIfnameProblem : ifnameProblem;
  const problems = Object.entries({
    CNI_CONTAINERID: missing(containerId) ?? containerIdProblem(containerId),
    CNI_NETNS: command === "DEL" ? undefined : missing(netns),
    CNI_IFNAME: missing(ifname) ?? ifnameRule(ifname),
  }).flatMap(([variable, problem]) => problem === undefined ? [] : [`${variable} ${problem}`]);
  if (problems.length > 0) throw new CniError(Code.InvalidEnvironment, `Cannot run ${command}: ${problems.join("; ")}`);
}

/** Reads the CNI_* variables. @throws {CniError} code 4 naming every variable that is missing or wrong */
export function parseEnvironment(env: Readonly<Record<string, string | undefined>>): Environment {
  const command = parseCommand(env.CNI_COMMAND ?? "");
  const isAttachment = isAttachmentCommand(command);
  const environment: Environment = {
    command,
    containerId: isAttachment ? env.CNI_CONTAINERID ?? "" : "",
    ifname: isAttachment ? env.CNI_IFNAME ?? "" : "",
    ...(isAttachment && env.CNI_NETNS && { netns: env.CNI_NETNS }),
    args: env.CNI_ARGS ?? "",
    // An empty entry would mean the working directory, where any file could become a plugin.
    path: (env.CNI_PATH ?? "").split(":").filter((directory) => directory !== ""),
    netnsOverride: isTrue(env.CNI_NETNS_OVERRIDE ?? ""),
  };
  requireParameters(environment);
  return environment;
}

/** What is wrong with a container id, or nothing: a letter or digit, then letters, digits, `_`, `.`, `-`. */
export function containerIdProblem(id: string): string | undefined {
  if (id === "") return "is empty";
  if (/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(id)) return undefined;
  return `${excerpt(id)} must start with a letter or digit and hold only letters, digits, "_", "." and "-"`;
}

/** What is wrong with a network name, or nothing; the rule is that of container ids. */
export const networkNameProblem = containerIdProblem;

/** What is wrong with a name for a Linux interface, or nothing. */
export function ifnameProblem(name: string): string | undefined {
  if (name === "") return "is empty";
  const quoted = excerpt(name);
  // A UTF-16 unit takes at most three bytes: short names need no counting.
  if (name.length > 5 && new TextEncoder().encode(name).length > 15) return `${quoted} is longer than 15 bytes`;
  if (name.includes("\0")) return `${quoted} has a NUL`;
  if (name === "." || name === "..") return `${quoted} is . or ..`;
  // Unicode's White_Space; \s differs: it has U+FEFF and lacks U+0085.
  if (/[/:\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/.test(name)) {
    return `${quoted} has a /, a : or white space`;
  }
  return undefined;
}

/**
 * What is wrong with a name for a new interface, or nothing. The kernel replaces a `%`, and refuses names that /proc/sys
 * has beside interfaces (net/ipv4/devinet.c `sysctl_dev_name_is_allowed()`).
 */
export function linkNameProblem(name: string): string | undefined {
  if (name === "all" || name === "default") return `"${name}" stands for all interfaces in /proc/sys, and names none`;
  return ifnameProblem(name) ?? (name.includes("%") ? `${excerpt(name)} has a %` : undefined);
}

/** What is wrong with the name of a container's interface for ADD, or nothing. It stands in the ruleset, where nft(8) reads no `"`. */
export function newIfnameProblem(name: string): string | undefined {
  return linkNameProblem(name) ?? (name.includes('"') ? `${excerpt(name)} has a "` : undefined);
}

/**
 * Reads CNI_ARGS strictly: `K=V;K2=V2`, only declared keys in their exact spelling. An empty value counts as missing.
 * Unknown keys are ignored only if `IgnoreUnknown` is true, wherever it stands.
 *
 * @throws {CniError} code 4
 */
export function parseArgs<const K extends readonly string[]>(
  text: string,
  declared: K,
): { readonly [N in K[number]]?: string } {
  const known: Record<string, string> = {};
  const unknown: string[] = [];
  let ignoreUnknown = false;
  for (const pair of text === "" ? [] : text.split(";")) {
    const [key, value, ...rest] = pair.split("=");
    if (value === undefined || rest.length > 0) throw invalidArgsError(`invalid pair ${excerpt(pair)}`);
    if (key === "IgnoreUnknown") ignoreUnknown = parseBoolean(value);
    else if (!declared.includes(key)) unknown.push(pair);
    else if (value !== "") known[key] = value;
  }
  if (unknown.length > 0 && !ignoreUnknown) {
    throw invalidArgsError(
      `unknown args ${excerpt(unknown)}`,
      'if they are for other plugins of the list, add "IgnoreUnknown=1"',
    );
  }
  return known as { readonly [N in K[number]]?: string };
}

/** The pairs of CNI_ARGS, in order; parts without `=` are left out, and the first of several `=` splits. */
export function parsePairs(text: string): readonly (readonly [key: string, value: string])[] {
  return text.split(";").filter((pair) => pair.includes("=")).map((pair) => {
    const [key = "", ...value] = pair.split("=");
    return [key, value.join("=")] as const;
  });
}

function parseCommand(text: string): CniCommand {
  if (text === "") throw new CniError(Code.InvalidEnvironment, "Cannot run: CNI_COMMAND is missing");
  if (Object.hasOwn(introducedIn, text)) return text as CniCommand;
  throw new CniError(Code.InvalidEnvironment, `Cannot run: unknown CNI_COMMAND ${excerpt(text)}`);
}

function parseBoolean(text: string): boolean {
  if (isTrue(text)) return true;
  if (text === "0" || text.toLowerCase() === "false") return false;
  throw invalidArgsError(`IgnoreUnknown must be 1, 0, true or false: got ${excerpt(text)}`);
}

/** What the reference plugins accept as yes. */
export function isTrue(text: string): boolean {
  return text === "1" || text.toLowerCase() === "true";
}

function invalidArgsError(reason: string, details?: string): CniError {
  return new CniError(Code.InvalidEnvironment, `Cannot use CNI_ARGS: ${reason}`, details ? { details } : {});
}
