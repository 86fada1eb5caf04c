/** The manifests against the schemas that Kubernetes publishes, and as kubectl reads them. */
import { describe, expect, test } from "bun:test";
import { DaemonSet } from "kubernetes-models/apps/v1/DaemonSet";
import { ClusterRole } from "kubernetes-models/rbac.authorization.k8s.io/v1/ClusterRole";
import { ClusterRoleBinding } from "kubernetes-models/rbac.authorization.k8s.io/v1/ClusterRoleBinding";
import { ConfigMap } from "kubernetes-models/v1/ConfigMap";
import { ServiceAccount } from "kubernetes-models/v1/ServiceAccount";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import packageManifest from "../package.json" with { type: "json" };
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { buildGoProgram } from "../testing/go_program.ts";
import { type Manifest, renderManifests } from "../testing/manifests.ts";

const MODELS = { DaemonSet, ClusterRole, ClusterRoleBinding, ConfigMap, ServiceAccount };
/** Where each has its type. */
const MODULES: Readonly<Record<keyof typeof MODELS, string>> = {
  DaemonSet: "apps/v1/DaemonSet",
  ClusterRole: "rbac.authorization.k8s.io/v1/ClusterRole",
  ClusterRoleBinding: "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
  ConfigMap: "v1/ConfigMap",
  ServiceAccount: "v1/ServiceAccount",
};
const DIRECTORIES = ["deploy", "deploy/ranges", "deploy/uninstall"];

const DAEMON_SET = JSON.stringify(renderManifests("deploy").find(({ kind }) => kind === "DaemonSet"));

/** Values that the schemas do not allow, by what is wrong. */
const MISTAKES: readonly (readonly [description: string, from: string, to: string])[] = [
  ["a value of no list", `"type":"DirectoryOrCreate"`, `"type":5`],
  ["a missing key", `"selector":`, `"labels":`],
  ["another version", `"apps/v1"`, `"apps/v2"`],
];

/** Keys that Kubernetes does not know. */
const TYPOS: readonly (readonly [from: string, to: string])[] = [
  [`"hostNetwork"`, `"hostNetworks"`],
  [`"livenessProbe"`, `"livenessProb"`],
  [`"add"`, `"adds"`],
  [`"RuntimeDefault"`, `"RuntimeDefaults"`],
];

/** The library in kubectl, of one version: that of Debian 12 is too old, and machines have others. */
const kustomizer = buildGoProgram("kustomize");

describe.each(DIRECTORIES)("%s", (directory) => {
  const manifests = renderManifests(directory);

  test("has only what the schemas allow", () => {
    for (const manifest of manifests) validate(manifest);
  });

  test("names the image of this version", () => {
    expect(JSON.stringify(manifests)).toContain(`"image":"localhost/cni:v${packageManifest.version}"`);
  });

  kustomizer.test("is what kubectl makes of it", () => {
    const rendered = JSON.stringify(kustomize(join(REPOSITORY_ROOT, directory)));
    // Without a hash, a changed network would reach no node that has one.
    expect(rendered).not.toContain(`"cni-network"`);
    const hashless = rendered.replace(/"(cni-network)-[a-z0-9]{10}"/g, `"$1"`);
    expect(sorted(JSON.parse(hashless))).toEqual(sorted(manifests));
  });
});

kustomizer.test("the documentation's kustomization puts another image and another network into the base", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-kustomization-"));
  const documented = readFileSync(join(REPOSITORY_ROOT, "docs/kubernetes.md"), "utf8");
  const network = `{ "name": "pods" }\n`;
  cpSync(import.meta.dir, join(directory, "deploy"), { recursive: true });
  writeFileSync(join(directory, "kustomization.yaml"), /```yaml\n(.*?)```/s.exec(documented)![1]!);
  writeFileSync(join(directory, "10-pods.conflist"), network);
  const manifests = kustomize(directory);
  rmSync(directory, { recursive: true });
  const images = JSON.stringify(manifests).match(/(?<="image":")[^"]+/g);
  expect(new Set(images)).toEqual(new Set([`example.org/cni:v${packageManifest.version}`]));
  expect(manifests.find(({ kind }) => kind === "ConfigMap")).toMatchObject({ data: { "10-pods.conflist": network } });
});

kustomizer.test("the component for the condition of nodes adds its right and its option, and nothing else", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-kustomization-"));
  cpSync(import.meta.dir, join(directory, "deploy"), { recursive: true });
  writeFileSync(
    join(directory, "kustomization.yaml"),
    "resources: [./deploy]\ncomponents: [./deploy/node-condition]\n",
  );
  const [manifests, plain] = [kustomize(directory), kustomize(join(directory, "deploy"))];
  rmSync(directory, { recursive: true });
  for (const manifest of manifests) validate(manifest);
  const [role, daemonSet] = ["ClusterRole", "DaemonSet"].map((name) => manifests.find(({ kind }) => kind === name));
  const right = { apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"] };
  expect((role as unknown as { rules: object[] }).rules.at(-1)).toEqual(right);
  expect(JSON.stringify(daemonSet)).toContain('"--cluster=network","--node-condition"]');
  const without = JSON.stringify(sorted(manifests)).replace(',"--node-condition"', "").replace(
    `,${JSON.stringify(right)}`,
    "",
  );
  expect(JSON.parse(without)).toEqual(sorted(plain));
});

test("a ConfigMap has the label of the DaemonSet, by which those of earlier networks are found", () => {
  const [daemonSet, configMap] = ["DaemonSet", "ConfigMap"].map((name) =>
    renderManifests("deploy").find(({ kind }) => kind === name)!
  );
  expect(configMap!.metadata.labels).toEqual(daemonSet!.metadata.labels!);
});

test.each(MISTAKES)("the schemas refuse %s", (_, from, to) => {
  const wrong = DAEMON_SET.replace(from, to);
  expect(wrong).not.toBe(DAEMON_SET);
  expect(() => validate(JSON.parse(wrong))).toThrow();
});

test("the types of the schemas know each key, and would refuse a typo", () => {
  const directory = newSourceDirectory();
  try {
    const manifests = DIRECTORIES.flatMap(renderManifests);
    manifests.forEach((manifest, i) => writeTyped(directory, `good${i}`, manifest.kind, JSON.stringify(manifest)));
    TYPOS.forEach(([from, to], i) => writeTyped(directory, `typo${i}`, "DaemonSet", DAEMON_SET.replace(from, to)));
    const { stderr } = Bun.spawnSync(["node_modules/.bin/deno", "check", "--quiet", directory], {
      cwd: REPOSITORY_ROOT,
      env: { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    });
    const refused = new Set(stderr.toString().match(/(?:good|typo)\d+(?=\.ts)/g));
    expect([...refused].sort()).toEqual(TYPOS.map((_, i) => `typo${i}`));
  } finally {
    rmSync(directory, { recursive: true });
  }
}, 120_000);

function kustomize(directory: string): Manifest[] {
  const { stdout, stderr, exitCode } = Bun.spawnSync([kustomizer.path, directory]);
  expect([exitCode, stderr.toString()]).toEqual([0, ""]);
  return [Bun.YAML.parse(stdout.toString()) as Manifest[] | Manifest].flat();
}

function validate(manifest: Manifest): void {
  const Model = MODELS[manifest.kind as keyof typeof MODELS];
  expect(Model).toMatchObject({ apiVersion: manifest.apiVersion, kind: manifest.kind });
  // Their constructors take data that is typed already.
  new Model(manifest as never).validate();
}

/** Where modules of npm are found. */
function newSourceDirectory(): string {
  const parent = join(REPOSITORY_ROOT, "dist");
  mkdirSync(parent, { recursive: true });
  return mkdtempSync(join(parent, "manifests-"));
}

function writeTyped(directory: string, name: string, kind: string, json: string): void {
  const module = MODULES[kind as keyof typeof MODULES];
  const text =
    `import type { I${kind} } from "kubernetes-models/${module}";\nexport const manifest: I${kind} = ${json};\n`;
  writeFileSync(join(directory, `${name}.ts`), text);
}

const sorted = (manifests: readonly Manifest[]): readonly Manifest[] =>
  manifests.toSorted((a, b) => a.kind.localeCompare(b.kind));
