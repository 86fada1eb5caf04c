/** The CNI_* variables (SPEC §Parameters). An empty one counts as missing. */
import { CniError, Code } from "./error.ts";
import { excerpt } from "./jsonc.ts";
import { type CniCommand, introducedIn } from "./version.ts";

/** The parameters that follow CNI_COMMAND. */
export interface Parameters {
  /** Empty for GC, STATUS and VERSION. */
  readonly containerId: string;
  /** Empty for the same commands as `containerId`. */
  readonly ifname: string;
  /** The path of the namespace, which ADD and CHECK need. */
  readonly netns?: string;
  /** CNI_ARGS as text, for {@linkcode parseArgs}. */
  readonly args: string;
  /** Plugin directories for delegation; may be empty. */
  readonly path: readonly string[];
  /** Whether a plugin may work on its own namespace. */
  readonly netnsOverride: boolean;
}

export interface Environment extends Parameters {
  readonly command: CniCommand;
}

const isAttachmentCommand = (command: string): boolean => ["ADD", "DEL", "CHECK", "RESTORE"].includes(command);

/** @throws {CniError} code 4 naming every missing or wrong parameter */
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

/** @throws {CniError} code 4 naming every missing or wrong variable */
export function parseEnvironment(env: Readonly<Record<string, string | undefined>>): Environment {
  const command = parseCommand(env.CNI_COMMAND ?? "");
  const isAttachment = isAttachmentCommand(command);
  const environment: Environment = {
    command,
    containerId: isAttachment ? env.CNI_CONTAINERID ?? "" : "",
    ifname: isAttachment ? env.CNI_IFNAME ?? "" : "",
    ...(isAttachment && env.CNI_NETNS && { netns: env.CNI_NETNS }),
    args: env.CNI_ARGS ?? "",
    // An empty entry would mean the working directory: any file there could become a plugin.
    path: (env.CNI_PATH ?? "").split(":").filter((directory) => directory !== ""),
    netnsOverride: isTrue(env.CNI_NETNS_OVERRIDE ?? ""),
  };
  requireParameters(environment);
  return environment;
}

/** @see SPEC §Parameters */
export function containerIdProblem(id: string): string | undefined {
  if (id === "") return "is empty";
  if (/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(id)) return undefined;
  return `${excerpt(id)} must start with a letter or digit and hold only letters, digits, "_", "." and "-"`;
}

export const networkNameProblem = containerIdProblem;

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
 * For a new interface. The kernel replaces a `%`, and refuses names of /proc/sys (net/ipv4/devinet.c
 * `sysctl_dev_name_is_allowed()`).
 */
export function linkNameProblem(name: string): string | undefined {
  if (name === "all" || name === "default") return `"${name}" stands for all interfaces in /proc/sys, and names none`;
  return ifnameProblem(name) ?? (name.includes("%") ? `${excerpt(name)} has a %` : undefined);
}

/** For ADD: the name stands in the ruleset, where nft(8) reads no `"`. */
export function newIfnameProblem(name: string): string | undefined {
  return linkNameProblem(name) ?? (name.includes('"') ? `${excerpt(name)} has a "` : undefined);
}

/**
 * Reads CNI_ARGS (`K=V;K2=V2`). Keys match exactly, and an empty value counts as missing. `IgnoreUnknown` allows
 * undeclared keys, wherever it stands.
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

/** The pairs of CNI_ARGS, in order. Skips parts without `=`; the first `=` splits. */
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
