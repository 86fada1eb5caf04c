/** The list of materials of a release (CycloneDX): packages as npm installed them, and the runtime with its parts. @module */
import { packagedFolders, packageLicence, readPackage, runtimeLicencePage } from "./licences.ts";
import { type Component, runtimeComponents } from "./sbom_runtime.ts";

/** @param others that no package declares @returns the document as text: no time and no random number is in it */
export function softwareBillOfMaterials(others: readonly Component[] = []): string {
  const program: Component = { ...packageComponent(""), type: "application" };
  const parts = [...runtimeComponents(runtimeLicencePage(), process.versions), ...others];
  const folders = packagedFolders();
  const bom = {
    $schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { component: program, properties: [{ name: "cdx:reproducible", value: "true" }] },
    components: [...folders.map(packageComponent), ...parts],
    dependencies: [
      { ref: program["bom-ref"], dependsOn: [...dependenciesOf(""), ...parts.map((part) => part["bom-ref"])] },
      ...folders.map((folder) => ({ ref: packageUrl(folder), dependsOn: dependenciesOf(folder) })),
      ...parts.map((part) => ({ ref: part["bom-ref"] })),
    ],
  };
  return `${JSON.stringify(bom, null, 2)}\n`;
}

/** @param folder below the root of the repository, which is a package itself */
function packageComponent(folder: string): Component {
  const { name, version, description, license, homepage } = readPackage(folder);
  const [group, ownName] = name.startsWith("@") ? name.split("/") as [string, string] : [undefined, name];
  const { file, text } = packageLicence(folder);
  return {
    type: "library",
    "bom-ref": packageUrl(folder),
    ...group !== undefined && { group },
    name: ownName,
    version,
    ...description !== undefined && { description },
    licenses: [{ license: { id: license } }],
    purl: packageUrl(folder),
    ...homepage !== undefined && { externalReferences: [{ type: "website", url: homepage }] },
    evidence: {
      licenses: [{ license: { name: `file: ${file}`, text: { contentType: "text/plain", content: text } } }],
    },
  };
}

function packageUrl(folder: string): string {
  const { name, version } = readPackage(folder);
  return `pkg:npm/${name.replace("@", "%40")}@${version}`;
}

/** What a package finds when it imports those that it names: the nearest, its own first. */
function dependenciesOf(folder: string): readonly string[] {
  return Object.keys(readPackage(folder).dependencies ?? {}).map((name) => {
    const end = `node_modules/${name}`;
    const visible = packagedFolders().filter((path) =>
      path.endsWith(end) && `${folder}/`.startsWith(path.slice(0, -end.length))
    );
    return packageUrl(visible.toSorted((a, b) => b.length - a.length)[0]!);
  });
}
