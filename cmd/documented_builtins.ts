/** Help loads every command, and needs neither plugins nor their docs.ts. */
export async function loadDocumentedBuiltins(): Promise<void> {
  const [{ loadPlugins }, { loadPluginDocs }] = await Promise.all([
    import("../plugins/registry.ts"),
    import("../plugins/docs_registry.ts"),
  ]);
  await Promise.all([loadPlugins(), loadPluginDocs()]);
}
