// Swagger UI has a dark dress, and puts it on when its page says so.

const dark = matchMedia("(prefers-color-scheme: dark)");

function dress() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

dark.addEventListener("change", dress);
dress();
