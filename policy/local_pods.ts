/** Pods that the plugin has attached to this node: the kernel knows their addresses, others know their names. @module */
import type { Ip } from "../ffi/address.ts";
import type { AttachedAddress } from "../plugins/lib/policy/attached_pods.ts";
import { findOccupant } from "../runtime/cache.ts";
import { localKey, type LocalPod } from "./compiler.ts";

type PodName = Omit<LocalPod, "ips">;

export class LocalPods {
  readonly #cacheDirectories: readonly string[];
  /** By container; `undefined` for one of no pod. */
  readonly #names = new Map<string, PodName | undefined>();

  constructor(cacheDirectories: readonly string[]) {
    this.#cacheDirectories = cacheDirectories;
  }

  /** During an ADD, only the plugin knows it. */
  name(containerId: string, pod: PodName): void {
    this.#names.set(containerId, pod);
  }

  /** @param findOwner tells whose address it is, as far as the API knows */
  group(attached: readonly AttachedAddress[], findOwner: (ip: Ip) => PodName | undefined): Map<string, LocalPod> {
    const pods = new Map<string, LocalPod>();
    for (const each of attached) {
      const name = this.#nameOf(each) ?? findOwner(each.ip);
      if (!name) continue;
      const key = localKey(name);
      const ips = [...pods.get(key)?.ips ?? [], each.ip].sort();
      pods.set(key, { ...name, ips });
    }
    const present = new Set(attached.map(({ containerId }) => containerId));
    for (const containerId of this.#names.keys()) if (!present.has(containerId)) this.#names.delete(containerId);
    return pods;
  }

  #nameOf(attached: AttachedAddress): PodName | undefined {
    const { containerId } = attached;
    if (this.#names.has(containerId)) return this.#names.get(containerId);
    // An entry is written after the ADD.
    const entry = this.#cacheDirectories.map((directory) => findOccupant(directory, attached)).find((each) => each);
    if (!entry) return undefined;
    const args = new Map(entry.args);
    const [namespace, name, uid] = ["NAMESPACE", "NAME", "UID"].map((part) => args.get(`K8S_POD_${part}`));
    const pod = namespace && name ? { namespace, name, ...uid && { uid } } : undefined;
    this.#names.set(containerId, pod);
    return pod;
  }
}
