// Browsers start no web workers for pages that are opened as files. There, the search runs in a hidden frame instead.
// The name of this file tells the offline plugin of the theme not to load its own script from another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame
    #loaded

    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      frame.contentDocument.open()
      frame.contentDocument.write("<!doctype html><body></body>")
      frame.contentDocument.close()
      this.#frame = frame.contentWindow
      const load = address =>
        new Promise((resolve, reject) => {
          const script = this.#frame.document.createElement("script")
          script.onload = resolve
          script.onerror = reject
          script.src = address
          this.#frame.document.body.appendChild(script)
        })
      this.#frame.importScripts = async (...addresses) => {
        for (const address of addresses) await load(address)
      }
      this.#frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.#loaded = load(url)
    }

    postMessage(data) {
      this.#loaded.then(() => this.#frame.dispatchEvent(new this.#frame.MessageEvent("message", { data })))
    }

    terminate() {
      this.#frame.frameElement.remove()
    }
  }
}
