/** The manifests of `deploy/`, as `kubectl kustomize` makes them, but without the hashes in names. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
}

/** What our kustomization.yaml files use. */
interface Kustomization {
  /** Files, and directories of other kustomizations. */
  readonly resources: readonly string[];
  readonly patches?: readonly { readonly target: { readonly kind: string }; readonly patch: string }[];
  readonly configMapGenerator?: readonly {
    readonly name: string;
    readonly namespace: string;
    readonly files: readonly string[];
    readonly options: { readonly labels: Readonly<Record<string, string>> };
  }[];
  readonly images?: readonly { readonly name: string; readonly newName: string; readonly newTag: string }[];
}

/** One operation of a JSON patch, see RFC 6902. */
interface Replacement {
  readonly op: "replace";
  readonly path: string;
  readonly value: unknown;
}

/** @param directory of a kustomization.yaml, below the root of the repository */
export function renderManifests(directory: string): Manifest[] {
  const read = (name: string) => readFileSync(join(REPOSITORY_ROOT, directory, name), "utf8");
  const kustomization = Bun.YAML.parse(read("kustomization.yaml")) as Kustomization;
  const { resources, patches = [], configMapGenerator = [], images = [] } = kustomization;
  const manifests = resources.flatMap((name) =>
    name.endsWith(".yaml")
      ? Bun.YAML.parse(read(name)) as Manifest | Manifest[]
      : renderManifests(join(directory, name))
  );
  for (const { target, patch } of patches) {
    const patched = manifests.filter(({ kind }) => kind === target.kind);
    for (const change of Bun.YAML.parse(patch) as Replacement[]) {
      patched.forEach((manifest) => replace(manifest, change));
    }
  }
  const configMaps = configMapGenerator.map(({ name, namespace, files, options }) => ({
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name, namespace, labels: options.labels },
    data: Object.fromEntries(files.map((file) => [file, read(file)])),
  }));
  const renamed = images.reduce(
    (text, { name, newName, newTag }) => text.replaceAll(`"image":"${name}"`, `"image":"${newName}:${newTag}"`),
    JSON.stringify(manifests),
  );
  return [...JSON.parse(renamed), ...configMaps];
}

function replace(manifest: object, { op, path, value }: Replacement): void {
  const keys = path.split("/").slice(1);
  const last = keys.pop()!;
  const parent = keys.reduce((node, key) => node[key] as Record<string, unknown>, manifest as Record<string, unknown>);
  if (op !== "replace" || parent[last] === undefined) throw new Error(`Cannot patch ${path}: ${op}`);
  parent[last] = value;
}
