"""Pages and workflows of the repository go into the package, for ``ci-autotest docs`` and ``ci-autotest init``."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPages(build_py):
    """Copy them into the built package; an editable install reads them where they are."""

    def run(self) -> None:
        """Build the package, then copy the files."""
        super().run()
        if self.editable_mode:
            return
        for source in sorted([*Path("docs").rglob("*.md"), *Path("workflows").glob("*.yml")]):
            target = Path(self.build_lib) / "ci_autotest" / source
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(cmdclass={"build_py": BuildWithPages})
