import type { LintReport } from "./lint.ts";

/** Options of {@linkcode lintNetworks}, all with a default. */
export interface LintNetworksOptions {
  /** Where programs of plugins are; default: `["/opt/cni/bin"]`. */
  readonly pluginDirectories?: readonly string[];
  /** Names of rules that find nothing, such as `comments`. */
  readonly disabled?: readonly string[];
}

/**
 * Finds every mistake in files of networks, as `cni lint` does. Nothing is changed and no plugin is called.
 *
 * @param paths of files, or of directories of networks
 * @example
 * ```ts
 * import { lintNetworks } from "./mod.ts";
 *
 * const { files, problems } = await lintNetworks(["/etc/cni/net.d"], { disabled: ["comments"] });
 * console.log(files); // [ "/etc/cni/net.d/web.conflist" ]
 * for (const { file, line, severity, message } of problems) console.error(`${file}:${line}: ${severity}: ${message}`);
 * ```
 *
 * @throws {CniError} code 7 if there is no such file or directory
 * @throws {SystemError} if a directory cannot be read
 */
export async function lintNetworks(
  paths: readonly string[],
  { pluginDirectories = ["/opt/cni/bin"], disabled = [] }: LintNetworksOptions = {},
): Promise<LintReport> {
  // Only this needs the rules and the documentation of the plugins.
  const { lintFiles } = await import("./lint.ts");
  const { loadPluginDocs } = await import("../../plugins/docs_registry.ts");
  await loadPluginDocs();
  return lintFiles(paths, { pluginDirectories, disabled });
}
