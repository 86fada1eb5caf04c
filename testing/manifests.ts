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
  readonly resources: readonly string[];
  readonly configMapGenerator?: readonly {
    readonly name: string;
    readonly namespace: string;
    readonly files: readonly string[];
    readonly options: { readonly labels: Readonly<Record<string, string>> };
  }[];
  readonly images: readonly { readonly name: string; readonly newName: string; readonly newTag: string }[];
}

/** @param directory of a kustomization.yaml, below the root of the repository */
export function renderManifests(directory: string): Manifest[] {
  const read = (name: string) => readFileSync(join(REPOSITORY_ROOT, directory, name), "utf8");
  const { resources, configMapGenerator = [], images } = Bun.YAML.parse(read("kustomization.yaml")) as Kustomization;
  const manifests = resources.flatMap((name) => {
    const renamed = images.reduce(
      (text, image) => text.replaceAll(`image: ${image.name}\n`, `image: ${image.newName}:${image.newTag}\n`),
      read(name),
    );
    return Bun.YAML.parse(renamed) as Manifest | Manifest[];
  });
  const configMaps = configMapGenerator.map(({ name, namespace, files, options }) => ({
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name, namespace, labels: options.labels },
    data: Object.fromEntries(files.map((file) => [file, read(file)])),
  }));
  return [...manifests, ...configMaps];
}
