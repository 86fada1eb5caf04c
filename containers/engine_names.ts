/** Engines leave these names in arguments and files, and are never asked. @module */
import { findEntryNames } from "../ffi/sys/directory.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { findText } from "../ffi/sys/file.ts";
import { isJsonObject } from "../spec/schema.ts";
import type { NetworkAttachment } from "../runtime/attachments.ts";
import type { Args } from "../runtime/cache.ts";

export interface NamelessContainer {
  readonly containerId: string;
  readonly args: Args;
}

export interface NamedAttachment extends NetworkAttachment {
  /** `web`, or `namespace/pod` of Kubernetes; absent if no engine has left one. */
  readonly name?: string;
}

type NameById = readonly [containerId: string, name: string];

interface StateFiles {
  /** A `*` is one part of the path. */
  readonly pattern: string;
  parse(text: string, parts: readonly string[]): readonly NameById[];
}

/** Containers that do not outlive a reboot may lie in /run. */
const STORAGE_FILES = ["/var/lib/containers/storage", "/run/containers/storage"].flatMap((root) =>
  ["containers.json", "volatile-containers.json"].map((file) => `${root}/*-containers/${file}`)
);

const STATE_FILES: readonly StateFiles[] = [
  ...STORAGE_FILES.map((pattern) => ({ pattern, parse: parseStorage })),
  {
    // nerdctl: a file for each name, in a directory for each address and namespace of containerd.
    pattern: "/var/lib/nerdctl/*/names/*/*",
    parse: (id, [, namespace = "", name = ""]) => [[`${namespace}-${id.trim()}`, name]],
  },
];

/** Reads the files for the first container that needs them. */
export class EngineNames {
  #byId: ReadonlyMap<string, string> | undefined;

  find({ containerId, args }: NamelessContainer): string | undefined {
    const argument = new Map(args);
    const namespace = argument.get("K8S_POD_NAMESPACE");
    const pod = argument.get("K8S_POD_NAME");
    if (namespace && pod) return `${namespace}/${pod}`;
    // podman gives the name of the ADD as that of a pod, and may have renamed the container.
    return this.findById(containerId) ?? (pod || undefined);
  }

  findById(containerId: string): string | undefined {
    this.#byId ??= new Map(STATE_FILES.flatMap(readStateFiles));
    return this.#byId.get(containerId);
  }

  addTo(attachments: readonly NetworkAttachment[]): NamedAttachment[] {
    return attachments.map((attachment) => {
      const name = this.find(attachment);
      return name === undefined ? attachment : { ...attachment, name };
    });
  }
}

/** Leaves out what is missing, unreadable or broken: a container keeps its id. */
function readStateFiles({ pattern, parse }: StateFiles): NameById[] {
  return matchingPaths(pattern).flatMap(({ path, parts }) => {
    try {
      const text = findText(path);
      return text === undefined ? [] : parse(text, parts);
    } catch (error) {
      if (error instanceof SystemError || error instanceof SyntaxError) return [];
      throw error;
    }
  });
}

interface MatchingPath {
  readonly path: string;
  readonly parts: readonly string[];
}

function matchingPaths(pattern: string): MatchingPath[] {
  const [first = "", ...segments] = pattern.split("/");
  let found: MatchingPath[] = [{ path: first, parts: [] }];
  for (const segment of segments) {
    found = found.flatMap(({ path, parts }) => {
      if (!segment.includes("*")) return [{ path: `${path}/${segment}`, parts }];
      const [before = "", after = ""] = segment.split("*");
      const names = listNames(path).filter((name) => name.startsWith(before) && name.endsWith(after));
      return names.map((name) => ({
        path: `${path}/${name}`,
        parts: [...parts, name.slice(before.length, name.length - after.length)],
      }));
    });
  }
  return found;
}

function listNames(directory: string): string[] {
  try {
    return findEntryNames(directory) ?? [];
  } catch (error) {
    if (error instanceof SystemError) return [];
    throw error;
  }
}

/** The text is `[{"id": …, "names": […]}…]`. */
function parseStorage(text: string): NameById[] {
  const containers: unknown = JSON.parse(text);
  if (!Array.isArray(containers)) return [];
  return containers.filter(isJsonObject).flatMap(({ id, names }): NameById[] => {
    const name: unknown = Array.isArray(names) ? names[0] : undefined;
    return typeof id === "string" && typeof name === "string" && name !== "" ? [[id, name]] : [];
  });
}

/** Engines print the first digits. Ids of containerd's containers have a namespace before them. */
export function shortContainerId(containerId: string): string {
  const [, digits] = /^(?:.*-)?([0-9a-f]{12})[0-9a-f]{52}$/s.exec(containerId) ?? [];
  return digits ?? containerId;
}

export function describeContainerId(containerId: string, name: string | undefined): string {
  return name === undefined ? containerId : `${name} (${shortContainerId(containerId)})`;
}
