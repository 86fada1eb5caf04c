/** The namespaces that have a policy, as `cni serve` last knew them: what an ADD goes by while nobody can be asked. */
import { array, object, string } from "../../../spec/schema.ts";
import { findState } from "../protocol/state_file.ts";

const stored = object({ namespaces: array(string) });

/** @param dataDirectory as in the key `dataDir` */
export const policyNamespacesPath = (dataDirectory = "/var/lib/cni"): string =>
  `${dataDirectory}/policy/namespaces.json`;

/** @returns `undefined` if none were ever stored, or the file cannot be used */
export function readPolicyNamespaces(path: string, log: (message: string) => void): ReadonlySet<string> | undefined {
  const namespaces = findState(path, (node) => stored.parse(node), log)?.namespaces;
  return namespaces && new Set(namespaces);
}
