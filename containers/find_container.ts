import { SystemError } from "../ffi/sys/error.ts";
import { CniError, Code } from "../spec/error.ts";
import { describeContainerId, type NamedAttachment } from "./engine_names.ts";

type Candidate = Pick<NamedAttachment, "containerId" | "name">;

/** The pod of a `namespace/pod` is a name too. @throws {CniError} if several containers have it */
export function findByName<A extends Candidate>(word: string, attachments: readonly A[]): readonly A[] {
  const byId = attachments.filter(({ containerId }) => containerId === word);
  if (byId.length > 0) return byId;
  const byName = attachments.filter(({ name }) => name === word);
  const found = byName.length > 0 ? byName : attachments.filter(({ name = "" }) => name.endsWith(`/${word}`));
  return requireOne(found, word, "containers have this name");
}

/** Takes the begin of an id too; otherwise as {@linkcode findByName}. @throws {CniError} if several fit */
export function findContainer<A extends Candidate>(word: string, attachments: readonly A[]): readonly A[] {
  const found = findByName(word, attachments);
  if (found.length > 0) return found;
  const byPrefix = attachments.filter(({ containerId }) => beginsWith(containerId, word));
  return requireOne(byPrefix, word, "container ids begin with it");
}

/** The word may have been meant for something else. @throws {unknown} `error` unless exactly one container fits */
export function findContainerOrThrow<A extends Candidate>(
  word: string,
  attachments: readonly A[],
  error: unknown,
): readonly A[] {
  const found = findByName(word, attachments);
  const fitting = found.length > 0 ? found : attachments.filter(({ containerId }) => beginsWith(containerId, word));
  if (new Set(fitting.map(({ containerId }) => containerId)).size === 1) return fitting;
  // A word with a slash is also the path of a configuration.
  if (!(error instanceof SystemError) || error.code !== "ENOENT") throw error;
  const what = `Cannot find ${JSON.stringify(word)}: there is no such file, and no container has this name`;
  throw new CniError(Code.InvalidConfig, what, { details: '"cni run list" lists containers', cause: error });
}

/** With or without containerd's namespace before it. An id of `ctr` is a name, and counts as a whole. */
function beginsWith(containerId: string, prefix: string): boolean {
  return containerId.startsWith(prefix) || containerId.endsWith(`-${prefix}`) ||
    containerId.replace(/^.*-(?=[0-9a-f]{64}$)/s, "").startsWith(prefix);
}

function requireOne<A extends Candidate>(found: readonly A[], word: string, what: string): readonly A[] {
  const names = new Map(found.map(({ containerId, name }) => [containerId, name]));
  if (names.size <= 1) return found;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot tell which container ${JSON.stringify(word)} is: ${names.size} ${what}`,
    { details: [...names].map(([id, name]) => describeContainerId(id, name)).sort().join("; ") },
  );
}
