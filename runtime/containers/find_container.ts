import { CniError, Code } from "../../spec/error.ts";
import { describeContainerId, type NamedAttachment } from "./engine_names.ts";

type Candidate = Pick<NamedAttachment, "containerId" | "name">;

/** Those whose container has this id or name. The pod of a `namespace/pod` is a name too. @throws {CniError} if several have it */
export function findByName<A extends Candidate>(word: string, attachments: readonly A[]): readonly A[] {
  const byId = attachments.filter(({ containerId }) => containerId === word);
  if (byId.length > 0) return byId;
  const byName = attachments.filter(({ name }) => name === word);
  const found = byName.length > 0 ? byName : attachments.filter(({ name = "" }) => name.endsWith(`/${word}`));
  return requireOne(found, word, "containers have this name");
}

/** As {@linkcode findByName}, or by the begin of the id. @throws {CniError} if several fit */
export function findContainer<A extends Candidate>(word: string, attachments: readonly A[]): readonly A[] {
  const found = findByName(word, attachments);
  return found.length > 0 ? found : findByPrefix(word, attachments);
}

/** With or without containerd's namespace before it. @throws {CniError} if several begin with it */
function findByPrefix<A extends Candidate>(prefix: string, attachments: readonly A[]): readonly A[] {
  const found = attachments.filter(({ containerId }) =>
    containerId.startsWith(prefix) || containerId.replace(/^.*-(?=[0-9a-f]{64}$)/s, "").startsWith(prefix)
  );
  return requireOne(found, prefix, "container ids begin with it");
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
