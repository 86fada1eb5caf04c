/** Pods that the plugin has attached to this node: the kernel knows their addresses, others know their names. @module */
import type { Ip } from "../ffi/address.ts";
import type { AttachedAddress } from "../plugins/lib/policy/attached_pods.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { findOccupant } from "../runtime/cache.ts";
import { localKey, type LocalPod } from "./local_pod.ts";

type PodName = Omit<LocalPod, "ips">;

/**
 * Until then, a container without a name may be one that is just attached, whose entry comes after its ADD. The API may
 * still tell who had its address before.
 */
const SETTLED_MS = 30_000;

export class LocalPods {
  readonly #cacheDirectories: readonly string[];
  /** Containers without a name, and when they were seen first, in milliseconds. */
  readonly #unnamedSince = new Map<string, number>();
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
  group(
    attached: readonly AttachedAddress[],
    findOwner: (ip: Ip) => PodName | undefined,
    nowMs: number,
  ): Map<string, LocalPod> {
    const pods = new Map<string, LocalPod>();
    for (const each of attached) {
      const name = this.#nameOf(each) ?? this.#nameByAddress(each, findOwner, nowMs);
      if (!name) continue;
      const key = localKey(name);
      const ips = [...pods.get(key)?.ips ?? [], each.ip].sort();
      pods.set(key, { ...name, ips });
    }
    const present = new Set(attached.map(({ containerId }) => containerId));
    for (const known of [this.#names, this.#unnamedSince]) {
      for (const containerId of known.keys()) if (!present.has(containerId)) known.delete(containerId);
    }
    return pods;
  }

  /** For engines that keep no entries, or elsewhere. */
  #nameByAddress(
    { containerId, ip }: AttachedAddress,
    findOwner: (ip: Ip) => PodName | undefined,
    nowMs: number,
  ): PodName | undefined {
    if (this.#names.has(containerId)) return undefined;
    const since = this.#unnamedSince.get(containerId) ?? nowMs;
    this.#unnamedSince.set(containerId, since);
    if (nowMs - since < SETTLED_MS) return undefined;
    const owner = findOwner(ip);
    if (!owner) return undefined;
    const { namespace, name, uid } = owner;
    const pod = { namespace, name, uid };
    this.#names.set(containerId, pod);
    return pod;
  }

  #nameOf(attached: AttachedAddress): PodName | undefined {
    const { containerId } = attached;
    if (this.#names.has(containerId)) return this.#names.get(containerId);
    // An entry is written after the ADD.
    const entry = this.#cacheDirectories
      .map((directory) => ignoreSystemErrors(() => findOccupant(directory, attached)))
      .find((each) => each);
    if (!entry) return undefined;
    const args = new Map(entry.args);
    const [namespace, name, uid] = ["NAMESPACE", "NAME", "UID"].map((part) => args.get(`K8S_POD_${part}`));
    const pod = namespace && name ? { namespace, name, ...uid && { uid } } : undefined;
    this.#names.set(containerId, pod);
    return pod;
  }
}
