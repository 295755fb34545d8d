"""The pages of the documentation go into the package, so that ``ci-autotest docs`` prints them anywhere."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPages(build_py):
    """Copy ``docs/**/*.md`` into the built package; an editable install reads them where they are."""

    def run(self) -> None:
        """Build the package, then copy the pages."""
        super().run()
        if self.editable_mode:
            return
        for page in sorted(Path("docs").rglob("*.md")):
            target = Path(self.build_lib) / "ci_autotest" / page
            self.mkpath(str(target.parent))
            self.copy_file(str(page), str(target))


setup(cmdclass={"build_py": BuildWithPages})
